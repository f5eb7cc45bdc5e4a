/* The mounts of one sandbox, made in its worker's private mount namespace: image and disk, each seen through
 * the sandbox's own uid range, and the overlay over both. Called inside an order: a failure
 * answers with the step's name and leaves nothing, since the namespace dies with the worker. */
#include "launcher.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/securebits.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
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

/* Puts a mount over a folder of the sandbox's root, with no link of a tenant's making on the way. False when there
 * is no such folder. */
bool place_if_there(int tree, const char *name) {
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH};
    int root = open(STAGE_ROOT, O_PATH | O_DIRECTORY | O_CLOEXEC);
    CHECK(root);
    int where = (int)syscall(SYS_openat2, root, name, &how, sizeof how);
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
