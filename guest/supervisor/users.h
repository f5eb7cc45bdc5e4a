/* Users of the sandbox, from its own /etc/passwd and /etc/group: a static program has no name services. */
#ifndef USERS_H
#define USERS_H

#include <sys/types.h>

enum { MAX_GROUPS = 64 };

struct user {
    uid_t uid;
    gid_t gid;
    char name[256], home[256], shell[256];
    gid_t groups[MAX_GROUPS];
    int group_count;
};

/* `who` is a name or a number; a number needs no entry, nor does root. 0, or ENOENT, EINVAL. */
int user_find(const char *who, struct user *u);

#endif
