/*
 * files: what files.c offers beyond courier.h.
 */
#ifndef ENGINE_FILES_H
#define ENGINE_FILES_H

/* ends the threads of .files; calls under way come to their end first */
void files_close(void);

#endif
