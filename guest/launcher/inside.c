/* /run/sandboxer of one sandbox: a small file system of its own, in memory, that tells it where it is.
 *
 * Everybody inside, root too, sees it read-only; the supervisor alone holds the same file system writable, by a mount
 * that is at no path. So nothing of it is ever part of a disk, and no inode in it is another sandbox's. */
#include "launcher.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <unistd.h>

static int new_folder(const struct order *order) {
    char owner[16];
    snprintf(owner, sizeof owner, "%u", order->base);
    const char *const options[][2] = {
        {"mode", "0755"}, {"size", "256k"}, {"nr_inodes", "16"}, {"uid", owner}, {"gid", owner}, {NULL, NULL},
    };
    return new_mount("tmpfs", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, options);
}

int inside_mount(const struct order *order) {
    const struct mount_attr closed = {.attr_set = MOUNT_ATTR_RDONLY};
    int folder = new_folder(order);
    /* A mount can be copied only where it is somewhere. There it stays until the worker's namespace is gone: taking it
     * away by itself would wait for every processor of the host. */
    CHECK(move_mount(folder, "", AT_FDCWD, STAGE_INSIDE, MOVE_MOUNT_F_EMPTY_PATH));
    int seen = tree_clone(STAGE_INSIDE);
    CHECK(mount_setattr(seen, "", AT_EMPTY_PATH, (struct mount_attr *)&closed, sizeof closed));
    /* In a tree with a link or a file in the way there is nothing to see: its owner's choice. */
    (void)place_if_there(seen, "run/sandboxer");
    return folder;
}
