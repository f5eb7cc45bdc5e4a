/* Groups of processes in a kernel that is the sandbox's alone, for what the host's cgroups do elsewhere: a kill ends all
 * that a command started, whatever session it went to, and all commands together have only so many processes.
 *
 * That kernel's limit does not reach down a tree. So there are two trees, each held by us at no path: one whose only group
 * has the limit, and one with a group for each command. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "own_kernel.h"

#define ALL "all"
#define NOBODY_MORE "0"

/* Rounds of a kill before nobody may start anything for as long as it takes; then we give up: they are looked at again when
 * somebody asks for it again. */
enum { PATIENT = 4, ROUNDS = 64, PIDS_ROOM = 65536, LIMIT_ROOM = 32 };
/* Groups of ended commands that may lie about. */
enum { UNSWEPT = 32 };

static int limits = -1, commands = -1, entrance = -1;
static uint64_t last;

static int write_at(int folder, const char *path, const char *value)
{
    int fd = openat(folder, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int err = write(fd, value, strlen(value)) < 0 ? errno : 0;
    close(fd);
    return err;
}

static bool read_at(int folder, const char *path, char *text, size_t room)
{
    int fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
    size_t have = 0;
    ssize_t n = fd < 0 ? -1 : 1;
    while (n > 0 && have + 1 < room && (n = read(fd, text + have, room - 1 - have)) > 0)
        have += (size_t)n;
    if (fd >= 0)
        close(fd);
    text[have] = 0;
    return n >= 0;
}

bool groups_open(int limits_fd, int commands_fd, uint32_t processes)
{
    char most[LIMIT_ROOM];
    limits = limits_fd;
    snprintf(most, sizeof most, "%u", processes);
    if (mkdirat(limits, ALL, 0700))
        return false;
    entrance = openat(limits, ALL "/cgroup.procs", O_WRONLY | O_CLOEXEC);
    commands = commands_fd;
    return entrance >= 0 && !write_at(limits, ALL "/pids.max", most);
}

bool groups_are(void)
{
    return commands >= 0;
}

/* How often somebody was refused a process: the second number (see scripts/build-runsc). */
static uint64_t refusals(void)
{
    char text[64];
    if (!read_at(limits, ALL "/pids.current", text, sizeof text))
        return 0;
    char *second = strchr(text, '\n');
    return second ? strtoull(second, NULL, 10) : 0;
}

static void name_file(const struct proc *p, const char *file, char path[64])
{
    snprintf(path, 64, "%llu%s", (unsigned long long)p->group, file);
}

/* Those of which all have ended. Of one that is beginning somebody is in it before we go on (vfork). */
static void sweep(void)
{
    int fd = openat(commands, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *one; folder && (one = readdir(folder));)
        if (one->d_type == DT_DIR && one->d_name[0] != '.')
            unlinkat(commands, one->d_name, AT_REMOVEDIR);
    if (folder)
        closedir(folder);
}

int group_make(struct proc *p)
{
    char path[64];
    if (last % UNSWEPT == 0)
        sweep();
    p->group = ++last;
    p->refused_before = refusals();
    name_file(p, "", path);
    if (mkdirat(commands, path, 0700))
        return -1;
    name_file(p, "/cgroup.procs", path);
    return openat(commands, path, O_WRONLY | O_CLOEXEC);
}

int group_enter(int fd)
{
    return write(fd, "0", 1) == 1 && write(entrance, "0", 1) == 1 ? 0 : errno;
}

/* How many of them there were. */
static int kill_all_once(const char *path)
{
    static char text[PIDS_ROOM];
    int killed = 0;
    if (!read_at(commands, path, text, sizeof text))
        return 0;
    for (char *at = text, *end; *at; at = end) {
        long pid = strtol(at, &end, 10);
        if (end == at)
            break;
        if (pid > 1 && !kill((pid_t)pid, SIGKILL))
            killed++;
        while (*end == '\n')
            end++;
    }
    return killed;
}

void group_kill(const struct proc *p)
{
    char path[64], most[LIMIT_ROOM];
    bool is_held = false;
    if (!p->group || !read_at(limits, ALL "/pids.max", most, sizeof most))
        return;
    name_file(p, "/cgroup.procs", path);
    for (int round = 0; round < ROUNDS && kill_all_once(path); round++)
        if (round == PATIENT)
            is_held = !write_at(limits, ALL "/pids.max", NOBODY_MORE);
    if (is_held)
        write_at(limits, ALL "/pids.max", most);
}

void group_ended(struct proc *p)
{
    p->refused = p->group && refusals() > p->refused_before;
}
