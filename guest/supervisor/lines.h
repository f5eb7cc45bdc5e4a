/* See lines.c. */
#ifndef LINES_H
#define LINES_H

#include <stdint.h>

/* Carries lines until the host goes. Returns the exit code. */
int lines_run(uint16_t port);

#endif
