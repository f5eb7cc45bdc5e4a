/* sched_getaffinity and sysinfo, answered with the sandbox's own processors and memory. Nobody is held to what they say:
 * they are for programs that choose how many threads to start and how much to keep.
 *
 * We ask neither of the two ourselves, not by way of libc either: the filter would ask us. */
#include "told.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sysinfo.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "view.h"

enum { MASK_ROOM = 1024, STATUS_ROOM = 8192, WORD = sizeof(long), LOAD_SHIFT = SI_LOAD_SHIFT - 11 };

/* Where a caller may run, as the kernel has it, lowest processor first; how many bytes, or 0. */
static size_t real_mask(int tid, uint8_t mask[MASK_ROOM])
{
    static const char line[] = "\nCpus_allowed:\t";
    char path[32], text[STATUS_ROOM];
    snprintf(path, sizeof path, "/proc/%d/status", tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = 0;
    const char *begin = strstr(text, line), *end = begin ? strchr(begin + 1, '\n') : NULL;
    size_t digits = 0;
    memset(mask, 0, MASK_ROOM);
    if (!end)
        return 0;
    for (begin += sizeof line - 1; end > begin && digits < 2 * MASK_ROOM; ) {
        char c = *--end;
        if (c == ',')
            continue;
        uint8_t value = c >= 'a' ? c - 'a' + 10 : c - '0';
        mask[digits / 2] |= (value & 15) << digits % 2 * 4;
        digits++;
    }
    return (digits + 2 * WORD - 1) / (2 * WORD) * WORD;
}

/* The first of those where it may run, as many as there are processors for it. */
static void keep_first(uint8_t *mask, size_t size, unsigned cpus)
{
    for (size_t bit = 0; bit < 8 * size; bit++) {
        uint8_t one = 1 << bit % 8;
        if (!(mask[bit / 8] & one))
            continue;
        if (cpus)
            cpus--;
        else
            mask[bit / 8] &= ~one;
    }
}

/* Into memory of the caller, who waits: by the rights that it has over itself, since ours do not reach whoever is not
 * root. The memory is opened before the kernel is asked whether this very caller still waits; from there on it does until
 * it is killed (the filter is such that no signal interrupts it), so no other program's memory can be meant. */
static bool write_for(int questions, const struct seccomp_notif *ask, uint64_t at, const void *data, size_t size)
{
    char path[32];
    struct stat owner;
    snprintf(path, sizeof path, "/proc/%d/mem", (int)ask->pid);
    if (stat(path, &owner))
        return false;
    setfsgid(owner.st_gid);
    setfsuid(owner.st_uid);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    setfsuid(0);
    setfsgid(0);
    /* A change of ids makes us what the host's fs.suid_dumpable says: where that is 1, whoever is root inside could look
     * into us from there on. */
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (fd < 0)
        return false;
    uint64_t id = ask->id;
    bool done = !ioctl(questions, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) &&
                pwrite(fd, data, size, (off_t)at) == (ssize_t)size;
    close(fd);
    return done;
}

static bool tell_processors(int questions, const struct seccomp_notif *ask, struct seccomp_notif_resp *answer)
{
    uint8_t mask[MASK_ROOM];
    uint32_t room = (uint32_t)ask->data.args[1];
    int whose = (int)ask->data.args[0];
    unsigned cpus = view_cpus();
    size_t size = cpus && whose >= 0 ? real_mask(whose ? whose : (int)ask->pid, mask) : 0;
    if (!size)
        return false;
    if (room < size || room % WORD) {
        answer->error = -EINVAL;
        return true;
    }
    keep_first(mask, size, cpus);
    if (!write_for(questions, ask, ask->data.args[2], mask, size))
        return false;
    answer->val = (long)size;
    return true;
}

static bool tell_memory(int questions, const struct seccomp_notif *ask)
{
    struct memory m;
    unsigned load[3];
    if (!view_memory(&m))
        return false;
    view_load(load);
    struct sysinfo info;
    memset(&info, 0, sizeof info);
    info.uptime = (long)(view_uptime_us() / 1000000);
    for (int i = 0; i < 3; i++)
        info.loads[i] = (unsigned long)load[i] << LOAD_SHIFT;
    info.totalram = m.limit;
    info.freeram = m.limit - m.used;
    info.sharedram = m.shmem;
    info.procs = 1;
    info.mem_unit = 1;
    return write_for(questions, ask, ask->data.args[0], &info, sizeof info);
}

bool told(int questions, const struct seccomp_notif *ask, struct seccomp_notif_resp *answer)
{
    switch (ask->data.nr) {
    case SYS_sched_getaffinity: return tell_processors(questions, ask, answer);
    case SYS_sysinfo: return tell_memory(questions, ask);
    default: return false;
    }
}
