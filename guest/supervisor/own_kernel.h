/* What PID 1 settles for itself behind a kernel of another's, where no launcher could before it: see own_kernel.c. */
#ifndef OWN_KERNEL_H
#define OWN_KERNEL_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "loop.h"

/* Of 127.0.0.1: what asks for names is led here. */
enum { NAMES_PORT = 3 };

/* The folder that only we can write to, or -1 with errno. `way_out`: the proxy's port, or 0; `processes`: at most. */
int own_kernel_settle(uint16_t way_out, uint32_t processes);
/* Sockets of a way out: the proxy's listener, and two for names. False with errno. */
bool own_kernel_open(uint16_t way_out, int *proxy, int *datagrams, int *streams);
/* Which address far away a caller of the proxy's port meant; false: that port itself. */
bool own_kernel_meant(int call, struct sockaddr_in *to);

/* groups.c: all that a command starts, wherever it goes, and how many all commands may start */
bool groups_open(int limits, int commands, uint32_t processes);
bool groups_are(void);
int group_make(struct proc *p);             /* what the child enters it by, or -1 with errno */
int group_enter(int fd);                    /* in the child; 0 or errno */
void group_kill(const struct proc *p);
void group_ended(struct proc *p);           /* notes whether it met the limit */

#endif
