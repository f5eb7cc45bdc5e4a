#include "users.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_TABLE = 1 << 20, FIELDS = 7 };

/* The sandbox may have put anything there (a FIFO, an endless file): regular, bounded, or treated as empty. */
static char *slurp(const char *path)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;
    if (fd < 0)
        return NULL;
    char *text = NULL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= MAX_TABLE && (text = malloc(st.st_size + 1))) {
        ssize_t n, len = 0;
        while (len < st.st_size && (n = read(fd, text + len, st.st_size - len)) > 0)
            len += n;
        text[len] = 0;
    }
    close(fd);
    return text;
}

/* Cuts the next line of *rest into fields; missing ones are empty. False at the end. */
static bool next_entry(char **rest, char *field[FIELDS])
{
    if (!*rest || !**rest)
        return false;
    char *line = strsep(rest, "\n");
    for (int i = 0; i < FIELDS; i++) {
        char *f = strsep(&line, ":");
        field[i] = f ? f : (char *)"";
    }
    return true;
}

static bool number(const char *text, uint32_t *out)
{
    if (*text < '0' || *text > '9')
        return false;
    char *end;
    errno = 0;
    unsigned long n = strtoul(text, &end, 10);
    if (*end || errno || n >= UINT32_MAX)
        return false;
    *out = n;
    return true;
}

static void copy(char out[256], const char *text)
{
    snprintf(out, 256, "%s", text);
}

static bool from_passwd(const char *who, bool by_number, uint32_t uid, struct user *u)
{
    char *table = slurp("/etc/passwd"), *rest = table, *f[FIELDS];
    uint32_t id, gid;
    bool found = false;
    while (!found && next_entry(&rest, f)) {
        if (!number(f[2], &id) || !number(f[3], &gid))
            continue;
        if (strcmp(f[0], who) != 0 && !(by_number && id == uid))
            continue;
        u->uid = id;
        u->gid = gid;
        copy(u->name, f[0]);
        copy(u->home, *f[5] ? f[5] : "/");
        copy(u->shell, *f[6] ? f[6] : "/bin/sh");
        found = true;
    }
    free(table);
    return found;
}

static bool lists(const char *members, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = members; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (!strncmp(at, name, len) && (at[len] == ',' || !at[len]))
            return true;
    }
    return false;
}

static void add_groups(struct user *u)
{
    u->groups[u->group_count++] = u->gid;
    char *table = slurp("/etc/group"), *rest = table, *f[FIELDS];
    uint32_t gid;
    while (u->group_count < MAX_GROUPS && next_entry(&rest, f))
        if (number(f[2], &gid) && gid != u->gid && lists(f[3], u->name))
            u->groups[u->group_count++] = gid;
    free(table);
}

int user_find(const char *who, struct user *u)
{
    *u = (struct user){0};
    uint32_t uid = 0;
    bool by_number = number(who, &uid);
    if (!*who || strchr(who, ':') || strchr(who, '\n'))
        return EINVAL;
    if (!from_passwd(who, by_number, uid, u)) {
        if (!by_number && strcmp(who, "root") != 0)
            return ENOENT;
        u->uid = u->gid = uid;
        copy(u->name, uid ? who : "root");
        copy(u->home, uid ? "/" : "/root");
        copy(u->shell, "/bin/sh");
    }
    add_groups(u);
    return 0;
}
