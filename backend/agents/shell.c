/*
 * shell: the message is a script, its output the answer. The script is kept
 * in a file of the turn's own and read from there, so that what it runs finds
 * an empty stdin and can't eat the rest of it; errors stand where they came.
 */
#include "agents/adapter.h"

const struct adapter shell_adapter = {
    .tool = "shell",
    .format = FORMAT_TEXT,
    .doc = "# The message is a script that runs in the sandbox.\n"
           "command = cat >\"${COURIER_TURN_DIR:?}/script\" && "
           "exec bash \"$COURIER_TURN_DIR/script\" </dev/null 2>&1\n"
           "format = text\n"
           "service = local\n",
};
