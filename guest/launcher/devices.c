/* /dev of one sandbox: a small file system of its own, read-only, with its own nodes.
 *
 * Nothing in it is an inode that another sandbox has too. A shared node can be watched (inotify tells every open by
 * anybody) and locked, and fifty thousand locks on a shared /dev/null slow everybody's open a thousandfold. */
#include "launcher.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { SHM_BYTES_AN_INODE = 8192 };
static const char *const folders[] = {"pts", "shm", "mqueue", ".sandboxer", ".sandboxer/folder"};
static const struct { const char *name; unsigned major, minor; } nodes[] = {
    {"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
};
static const char *const links[][2] = {
    {"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
    {"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"}, {"/proc/kcore", "core"},
};

static void fill(int dev, const char *boot_id) {
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) CHECK(mkdirat(dev, folders[i], 0755));
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++)
        CHECK(mknodat(dev, nodes[i].name, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)));
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) CHECK(symlinkat(links[i][0], dev, links[i][1]));
    CHECK(mknodat(dev, ".sandboxer/file", S_IFREG | 0444, 0));
    int fd = openat(dev, ".sandboxer/boot_id", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    CHECK(fd);
    CHECK(dprintf(fd, "%s\n", boot_id));
    close(fd);
}

/* Filled before it is anywhere: nobody inside sees it writable. */
static int new_devices(const struct order *order, const char *owner) {
    const struct mount_attr closed = {.attr_set = MOUNT_ATTR_RDONLY};
    const char *const options[][2] = {
        {"mode", "0755"}, {"size", "64k"}, {"nr_inodes", "64"}, {"uid", owner}, {"gid", owner}, {NULL, NULL},
    };
    int dev = new_mount("tmpfs", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, options);
    mode_t mask = umask(0);
    setfsuid(order->base);
    setfsgid(order->base);
    fill(dev, order->boot_id);
    setfsuid(0);
    setfsgid(0);
    umask(mask);
    CHECK(mount_setattr(dev, "", AT_EMPTY_PATH, (struct mount_attr *)&closed, sizeof closed));
    return dev;
}

/* Terminals have a ceiling, since the kernel's count of them is shared by the whole host; shared memory a size. */
void devices_mount(const struct order *order) {
    char gid[16], max[16], size[24], inodes[24], owner[16];
    snprintf(gid, sizeof gid, "%u", order->base + 5);
    snprintf(max, sizeof max, "%u", order->ptys);
    snprintf(size, sizeof size, "%lu", order->shm_bytes);
    /* Of each file the kernel holds a little that is charged to nobody (check_setxattr). */
    snprintf(inodes, sizeof inodes, "%lu", order->shm_bytes / SHM_BYTES_AN_INODE + 1);
    snprintf(owner, sizeof owner, "%u", order->base);
    place_at(new_devices(order, owner), "dev");
    const char *const terminals[][2] = {
        {"ptmxmode", "0666"}, {"mode", "620"}, {"gid", gid}, {"max", max}, {NULL, NULL},
    };
    place_at(new_mount("devpts", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, terminals), "dev/pts");
    const char *const memory[][2] = {
        {"mode", "1777"}, {"size", size}, {"nr_inodes", inodes}, {"uid", owner}, {"gid", owner}, {NULL, NULL},
    };
    place_at(new_mount("tmpfs", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, memory), "dev/shm");
}
