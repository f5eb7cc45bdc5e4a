/* Volumes: disks that outlive sandboxes, each laid over its path inside; and folders of the sandbox's own disk that
 * are mounts of their own.
 *
 * Never bound there as they are: on a folder of the pool itself its file system takes orders from whoever may write
 * there (subvolumes, snapshots, none of them counted against the volume's limit). An overlay with nothing below
 * passes on reads and writes and no such order. */
#include "launcher.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_beneath(int folder, const char *name) {
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH};
    return (int)syscall(SYS_openat2, folder, name, &how, sizeof how);
}

/* The folder at `path` in the sandbox's root, made where it is missing. The tree may be a tenant's making: no link
 * in it is followed. */
static int open_place(const char *path) {
    char whole[4096], *rest = whole;
    if (strlen(path) >= sizeof whole) answer_failed(step_current(), ENAMETOOLONG, path);
    strcpy(whole, path);
    int folder = open(STAGE_ROOT, O_PATH | O_DIRECTORY | O_CLOEXEC);
    CHECK(folder);
    for (char *name; (name = strsep(&rest, "/")); ) {
        if (mkdirat(folder, name, 0755) && errno != EEXIST) answer_failed(step_current(), errno, path);
        int next = open_beneath(folder, name);
        if (next < 0) answer_failed(step_current(), errno, path);
        close(folder);
        folder = next;
    }
    return folder;
}

/* With nothing below, or, to be read only, as the upper of two layers that nobody writes. */
static int overlay_of(bool read_only) {
    static const char *const writable[][2] = {
        {"source", "volume"}, {"lowerdir", STAGE_NOTHING}, {"upperdir", STAGE_VOLUME "/upper"},
        {"workdir", STAGE_VOLUME "/work"}, {NULL, NULL},
    };
    static const char *const readable[][2] = {
        {"source", "volume"}, {"lowerdir", STAGE_VOLUME "/upper:" STAGE_NOTHING}, {NULL, NULL},
    };
    const unsigned attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    return read_only ? new_mount("overlay", attributes | MOUNT_ATTR_RDONLY, readable)
                     : new_mount("overlay", attributes, writable);
}

/* As with the sandbox's own disk: an upper side that cannot be used makes it read-only without a word. */
static void check_writable(int mounted) {
    struct statvfs seen;
    CHECK(fstatvfs(mounted, &seen));
    if (seen.f_flag & ST_RDONLY) answer_failed(step_current(), EROFS, "the volume came up read-only");
}

/* While the host's own paths are still there. */
void volumes_clone(const struct order *order, int *trees) {
    for (size_t i = 0; i < order->volume_count; i++) trees[i] = tree_clone(order->volumes[i].disk);
}

void volumes_mount(const struct order *order, const int *trees, int userns) {
    for (size_t i = 0; i < order->volume_count; i++) {
        const struct volume *volume = &order->volumes[i];
        /* One over the other: what an overlay was made of is its own from then on. */
        tree_place(trees[i], userns, volume->read_only, STAGE_VOLUME);
        setfsuid(order->base);
        setfsgid(order->base);
        int mounted = overlay_of(volume->read_only);
        if (!volume->read_only) check_writable(mounted);
        int where = open_place(volume->path);
        setfsuid(0);
        setfsgid(0);
        CHECK(move_mount(mounted, "", where, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH));
        close(where);
        close(mounted);
        CHECK(umount2(STAGE_VOLUME, MNT_DETACH));
    }
}

/* Mounted over itself: a link to or from what is outside of it is refused (EXDEV), and read-only it is so for every
 * program inside, none of which may change mounts. Before the volumes, one of which may lie in it. */
void folders_mount(const struct order *order) {
    for (size_t i = 0; i < order->folder_count; i++) {
        const struct folder *folder = &order->folders[i];
        struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY};
        setfsuid(order->base);
        setfsgid(order->base);
        int where = open_place(folder->path);
        setfsuid(0);
        setfsgid(0);
        int tree = open_tree(where, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        CHECK(tree);
        if (folder->read_only) CHECK(mount_setattr(tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes));
        CHECK(move_mount(tree, "", where, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH));
        close(tree);
        close(where);
    }
}
