/* What a worker may still do once it knows what it is for. */
#ifndef FENCE_H
#define FENCE_H

#include <stdbool.h>

enum fence_kind {
    FENCE_READ,                         /* look at files and folders */
    FENCE_WRITE,                        /* and change them */
    FENCE_CARRY,                        /* nothing but the descriptors it has */
};

/* For good. Nobody runs a program, makes a device, opens a TCP connection or signals anybody from here on.
 * False: this kernel cannot, or will not. */
bool fence(enum fence_kind kind);

#endif
