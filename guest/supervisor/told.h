/* The answers of system calls that tell of the host (told.c). */
#ifndef TOLD_H
#define TOLD_H

#include <linux/seccomp.h>
#include <stdbool.h>

/* True: answered, with the caller's memory written. False: it is the kernel's to say, and `answer` as it was. */
bool told(int questions, const struct seccomp_notif *ask, struct seccomp_notif_resp *answer);

#endif
