/* What an order wants made on the host: cgroup folders and their values, a subvolume, its limit, its first files. */
#include "launcher.h"

#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static void put(int fd, const char *value) {
    CHECK(fd);
    CHECK(write(fd, value, strlen(value)));
    close(fd);
}

void write_file(const char *path, const char *value) { put(open(path, O_WRONLY | O_CLOEXEC), value); }

/* A file of the host, as it is now, in a disk that is nobody's yet; a program stays one. */
static void copy_file(const char *path, const char *source) {
    struct stat seen;
    int from = open(source, O_RDONLY | O_CLOEXEC);
    CHECK(from);
    CHECK(fstat(from, &seen));
    mode_t mode = seen.st_mode & S_IXUSR ? 0755 : 0644;
    size_t size = (size_t)seen.st_size;
    int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    CHECK(to);
    CHECK(fchmod(to, mode));
    const char *data = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, from, 0) : "";
    if (data == MAP_FAILED) CHECK(-1);
    for (size_t done = 0; done < size;) {
        ssize_t n = write(to, data + done, size - done);
        CHECK(n);
        done += (size_t)n;
    }
    close(to);
    close(from);
}

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

/* A writable copy of a kept disk. Each snapshot waits for a commit of the whole pool with the folder it is made in
 * locked, so a hundred made in one folder wait for a hundred commits. Made in a folder of its own and moved, they
 * share one. What a crash leaves is found by its name. */
static void copy_subvolume(const char *path, const char *source) {
    struct btrfs_ioctl_vol_args_v2 args = {0};
    char folder[4096], made[4200];
    const char *name;
    int parent = open_parent(path, &name);
    close(parent);
    if (snprintf(folder, sizeof folder, "%.*s.birth-%s", (int)(name - path), path, name) >= (int)sizeof folder)
        answer_failed(step_current(), ENAMETOOLONG, path);
    CHECK(mkdir(folder, 0700));
    int place = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(place);
    args.fd = open(source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK((int)args.fd);
    strcpy(args.name, "disk");
    CHECK(ioctl(place, BTRFS_IOC_SNAP_CREATE_V2, &args));
    close((int)args.fd);
    close(place);
    snprintf(made, sizeof made, "%s/disk", folder);
    CHECK(rename(made, path));
    CHECK(rmdir(folder));
}

/* The group of all disks; the platform makes it where it can limit them together. */
#define ALL_DISKS ((1ULL << 48) | 1)

/* Through the folder that the disk is in: what asks for a change is charged with it, and a full disk has nothing
 * left for that. */
static void limit_subvolume(const char *path, const char *bytes) {
    struct btrfs_ioctl_ino_lookup_args lookup = {.objectid = BTRFS_FIRST_FREE_OBJECTID};
    const char *name;
    int parent = open_parent(path, &name);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(fd);
    CHECK(ioctl(fd, BTRFS_IOC_INO_LOOKUP, &lookup));
    close(fd);
    struct btrfs_ioctl_qgroup_limit_args args = {
        .qgroupid = lookup.treeid,
        .lim = {.flags = BTRFS_QGROUP_LIMIT_MAX_RFER, .max_rfer = strtoull(bytes, NULL, 10)},
    };
    CHECK(ioctl(parent, BTRFS_IOC_QGROUP_LIMIT, &args));
    struct btrfs_ioctl_qgroup_assign_args all = {.assign = 1, .src = lookup.treeid, .dst = ALL_DISKS};
    if (ioctl(parent, BTRFS_IOC_QGROUP_ASSIGN, &all) < 0 && errno != EEXIST && errno != ENOENT) CHECK(-1);
    close(parent);
}

/* Replaces a file of a disk that was a tenant's before, or only removes it (no value). What follows `/./` in the
 * path is a tenant's making: no link of theirs is followed, and where they left no such folder nothing is done. */
static void renew(const char *path, const char *value, mode_t mode) {
    struct open_how how = {
        .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH | RESOLVE_NO_XDEV,
    };
    char whole[4096], *theirs, *name;
    if (strlen(path) >= sizeof whole) answer_failed(step_current(), ENAMETOOLONG, path);
    strcpy(whole, path);
    if (!(theirs = strstr(whole, "/./")) || !(name = strrchr(theirs + 3, '/')))
        answer_failed(step_current(), EINVAL, path);
    *theirs = *name = 0;
    int disk = open(whole, O_PATH | O_DIRECTORY | O_CLOEXEC);
    CHECK(disk);
    int folder = (int)syscall(SYS_openat2, disk, theirs + 3, &how, sizeof how);
    close(disk);
    if (folder < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) return;
    CHECK(folder);
    /* A folder in its place stays: nothing reads a key from a folder. */
    if (!unlinkat(folder, name + 1, 0) || errno == ENOENT) {
        if (value) {
            int fd = openat(folder, name + 1, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
            CHECK(fd);
            CHECK(fchmod(fd, mode));
            put(fd, value);
        }
    } else if (errno != EISDIR && errno != EPERM) {
        CHECK(-1);
    }
    close(folder);
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
        case ACT_COPY:
            copy_file(act->path, act->value);
            break;
        case ACT_APPEND:
            put(open(act->path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC), act->value);
            break;
        case ACT_SUBVOLUME:
            make_subvolume(act->path);
            break;
        case ACT_LIMIT:
            limit_subvolume(act->path, act->value);
            break;
        case ACT_SNAPSHOT:
            copy_subvolume(act->path, act->value);
            break;
        case ACT_RENEW:
            renew(act->path, act->value, 0644);
            break;
        case ACT_RENEW_PRIVATE:
            renew(act->path, act->value, 0600);
            break;
        case ACT_FORGET:
            renew(act->path, NULL, 0);
            break;
        }
    }
}

/* The supervisor's socket, bound by a name relative to its folder: a host path may be longer than an address can hold.
 * We stay in that folder. */
int listen_at(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *slash = strrchr(path, '/');
    char folder[4096];
    if (!slash || (size_t)(slash - path) >= sizeof folder || strlen(slash + 1) >= sizeof address.sun_path)
        answer_failed(step_current(), ENAMETOOLONG, NULL);
    memcpy(folder, path, (size_t)(slash - path));
    folder[slash - path] = 0;
    strcpy(address.sun_path, slash + 1);
    CHECK(chdir(folder));
    unlink(address.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd);
    CHECK(bind(fd, (struct sockaddr *)&address, sizeof address));
    CHECK(chmod(address.sun_path, 0600));
    CHECK(listen(fd, 128));
    return fd;
}
