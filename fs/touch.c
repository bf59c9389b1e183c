#include "fs/touch.h"
int touch_start(void) { return -ENOSYS; }
void touch_mounted(const char *mount) { (void)mount; }
void touch_changed(struct node *n) { (void)n; }
int touch_timeout(void) { return -1; }
void touch_run(void) { }
void touch_stop(void) { }
