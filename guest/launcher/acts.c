/* What an order wants made on the host: cgroup folders and their values, a subvolume, its limit, its first files. */
#include "launcher.h"

#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

static void put(int fd, const char *value) {
    CHECK(fd);
    CHECK(write(fd, value, strlen(value)));
    close(fd);
}

void write_file(const char *path, const char *value) { put(open(path, O_WRONLY | O_CLOEXEC), value); }

/* Splits at the last slash: the folder's fd, and the name in it. */
static int open_parent(const char *path, const char **name) {
    char folder[4096];
    const char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash - path) >= sizeof folder) answer_failed(step_current(), ENAMETOOLONG, path);
    memcpy(folder, path, (size_t)(slash - path));
    folder[slash - path] = 0;
    *name = slash + 1;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(fd);
    return fd;
}

static void make_subvolume(const char *path) {
    struct btrfs_ioctl_vol_args args = {0};
    const char *name;
    int parent = open_parent(path, &name);
    if (strlen(name) > BTRFS_PATH_NAME_MAX) answer_failed(step_current(), ENAMETOOLONG, path);
    strcpy(args.name, name);
    CHECK(ioctl(parent, BTRFS_IOC_SUBVOL_CREATE, &args));
    close(parent);
    CHECK(chmod(path, 0755));
}

static void limit_subvolume(const char *path, const char *bytes) {
    struct btrfs_ioctl_ino_lookup_args lookup = {.objectid = BTRFS_FIRST_FREE_OBJECTID};
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(fd);
    CHECK(ioctl(fd, BTRFS_IOC_INO_LOOKUP, &lookup));
    struct btrfs_ioctl_qgroup_limit_args args = {
        .qgroupid = lookup.treeid,
        .lim = {.flags = BTRFS_QGROUP_LIMIT_MAX_RFER, .max_rfer = strtoull(bytes, NULL, 10)},
    };
    CHECK(ioctl(fd, BTRFS_IOC_QGROUP_LIMIT, &args));
    close(fd);
}

void acts_perform(const struct acts *acts) {
    for (size_t i = 0; i < acts->count; i++) {
        const struct act *act = &acts->list[i];
        switch (act->kind) {
        case ACT_FOLDER:
            if (mkdir(act->path, 0755) && errno != EEXIST) CHECK(-1);
            break;
        case ACT_WRITE:
            write_file(act->path, act->value);
            break;
        case ACT_CREATE:
            put(open(act->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644), act->value);
            break;
        case ACT_SUBVOLUME:
            make_subvolume(act->path);
            break;
        case ACT_LIMIT:
            limit_subvolume(act->path, act->value);
            break;
        }
    }
}
