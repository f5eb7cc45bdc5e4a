/* The mounts of one sandbox, made in its worker's private mount namespace: image and disk, each seen through
 * the sandbox's own uid range, and the overlay over both. Called inside an order: a failure
 * answers with the step's name and leaves nothing, since the namespace dies with the worker. */
#include "launcher.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/securebits.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A detached copy of the one mount `path` lives on, rooted at `path`. */
int tree_clone(const char *path) {
    int tree = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    CHECK(tree);
    return tree;
}

void tree_place(int tree, int userns, bool read_only, const char *where) {
    struct mount_attr attr = {
        .attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (read_only ? MOUNT_ATTR_RDONLY : 0),
        .userns_fd = (uint64_t)userns,
    };
    CHECK(mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof attr));
    CHECK(move_mount(tree, "", AT_FDCWD, where, MOVE_MOUNT_F_EMPTY_PATH));
    close(tree);
}

/* Mounted with the file ids of the range: as plain root the upper side has no such user and the overlay
 * comes up read-only without a word. Not from inside the namespace: `userxattr` forbids redirect_dir. */
void overlay_mount(const struct order *order) {
#define OVER(lower) "lowerdir=" lower ",upperdir=" STAGE_DISK "/upper,workdir=" STAGE_DISK "/work,redirect_dir=on"
    /* Below the image: whatever an image or a disk has of the same name is what its programs see. */
    const char *options = order->tools ? OVER(STAGE_IMAGE ":" STAGE_TOOLS) : OVER(STAGE_IMAGE);
    struct statvfs seen;
    /* The overlay works below with these very credentials, on files of every user inside: the change of
     * file ids must not cost the capabilities for that. */
    CHECK(prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP));
    setfsuid(order->base);
    setfsgid(order->base);
    int failed = mount("overlay", STAGE_ROOT, "overlay", MS_NOSUID | MS_NODEV, options);
    int err = errno;
    setfsuid(0);
    setfsgid(0);
    if (failed) answer_failed(step_current(), err, NULL);
    CHECK(statvfs(STAGE_ROOT, &seen));
    if (seen.f_flag & ST_RDONLY) answer_failed(step_current(), EROFS, "the overlay came up read-only");
}

int open_folder(const char *path) {
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    CHECK(fd);
    return fd;
}

static int open_beneath(int folder, const char *name) {
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH};
    return (int)syscall(SYS_openat2, folder, name, &how, sizeof how);
}

/* The folder at `path` in the tree below `root`, made where it is missing. The tree may be a tenant's making: no link in
 * it is followed. */
int open_place(int root, const char *path) {
    char whole[4096], *rest = whole;
    if (strlen(path) >= sizeof whole) answer_failed(step_current(), ENAMETOOLONG, path);
    strcpy(whole, path);
    int folder = root;
    for (char *name; (name = strsep(&rest, "/")); ) {
        if (mkdirat(folder, name, 0755) && errno != EEXIST) answer_failed(step_current(), errno, path);
        int next = open_beneath(folder, name);
        if (next < 0) answer_failed(step_current(), errno, path);
        if (folder != root) close(folder);
        folder = next;
    }
    return folder;
}

/* Mounted over itself: a link to or from what is outside of it is refused (EXDEV), and read-only it is so for every
 * program inside, none of which may change mounts. Before the volumes, one of which may lie in it. */
void folder_mount(int root, const struct folder *folder) {
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY};
    int where = open_place(root, folder->path);
    int tree = open_tree(where, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    CHECK(tree);
    if (folder->read_only) CHECK(mount_setattr(tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes));
    CHECK(move_mount(tree, "", where, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH));
    close(tree);
    close(where);
}

/* A volume's disk at `disk`, with nothing below, or, to be read only, as the upper of two layers that nobody writes. */
int volume_overlay(const char *disk, const char *nothing, bool read_only) {
    char upper[64], work[64], both[128];
    const unsigned attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    snprintf(upper, sizeof upper, "%s/upper", disk);
    snprintf(work, sizeof work, "%s/work", disk);
    snprintf(both, sizeof both, "%s:%s", upper, nothing);
    const char *const writable[][2] = {
        {"source", "volume"}, {"lowerdir", nothing}, {"upperdir", upper}, {"workdir", work}, {NULL, NULL},
    };
    const char *const readable[][2] = {{"source", "volume"}, {"lowerdir", both}, {NULL, NULL}};
    if (read_only) return new_mount("overlay", attributes | MOUNT_ATTR_RDONLY, readable);
    int mounted = new_mount("overlay", attributes, writable);
    struct statvfs seen;
    /* As with the sandbox's own disk: an upper side that cannot be used makes it read-only without a word. */
    CHECK(fstatvfs(mounted, &seen));
    if (seen.f_flag & ST_RDONLY) answer_failed(step_current(), EROFS, "the volume came up read-only");
    return mounted;
}

void volume_place(int root, int mounted, const char *path) {
    int where = open_place(root, path);
    CHECK(move_mount(mounted, "", where, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH));
    close(where);
    close(mounted);
}

/* Puts a mount over a folder of the sandbox's root, with no link of a tenant's making on the way. False when there
 * is no such folder. */
bool place_if_there(int tree, const char *name) {
    int root = open_folder(STAGE_ROOT);
    int where = open_beneath(root, name);
    close(root);
    if (where >= 0) {
        CHECK(move_mount(tree, "", where, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH));
        close(where);
    }
    int err = errno;
    close(tree);
    errno = err;
    return where >= 0;
}

void place_at(int tree, const char *name) { CHECK(place_if_there(tree, name) ? 0 : -1); }

int new_mount(const char *type, unsigned attributes, const char *const (*options)[2]) {
    int context = fsopen(type, FSOPEN_CLOEXEC);
    CHECK(context);
    for (; (*options)[0]; options++) CHECK(fsconfig(context, FSCONFIG_SET_STRING, (*options)[0], (*options)[1], 0));
    CHECK(fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0));
    int mounted = fsmount(context, FSMOUNT_CLOEXEC, attributes);
    CHECK(mounted);
    close(context);
    return mounted;
}
