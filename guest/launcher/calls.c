/* The table of system calls. What is in neither list does not exist inside (ENOSYS), so that libraries fall back:
 * what a newer kernel brings is not there until someone has looked at it. What is refused answers EPERM, as it would
 * for want of a capability. The choice and its reasons: decision 0020. */
#include "calls.h"

#include <asm/unistd.h>

/* Newer than some headers; these numbers are the same on every architecture. */
#ifndef __NR_fchmodat2
#define __NR_fchmodat2 452
#endif
#ifndef __NR_futex_wake
#define __NR_futex_wake 454
#define __NR_futex_wait 455
#define __NR_futex_requeue 456
#endif
#ifndef __NR_mseal
#define __NR_mseal 462
#endif

#define ALLOW(name) {__NR_##name, CHECK_NONE}

const struct call allowed_calls[] = {
    /* its own memory */
    ALLOW(brk), ALLOW(mmap), ALLOW(mprotect), ALLOW(munmap), ALLOW(mremap), ALLOW(msync), ALLOW(mincore),
    {__NR_madvise, CHECK_MADVISE}, ALLOW(mlock), ALLOW(mlock2), ALLOW(mlockall), ALLOW(munlock), ALLOW(munlockall),
    ALLOW(memfd_create), ALLOW(membarrier), ALLOW(remap_file_pages), ALLOW(pkey_alloc), ALLOW(pkey_free),
    ALLOW(pkey_mprotect), ALLOW(mseal), ALLOW(get_mempolicy), ALLOW(set_mempolicy),
    /* its own processes and threads */
    {__NR_clone, CHECK_CLONE}, ALLOW(execve), ALLOW(execveat), ALLOW(exit), ALLOW(exit_group), ALLOW(wait4),
    ALLOW(waitid), ALLOW(getpid), ALLOW(getppid), ALLOW(gettid), ALLOW(getpgid), ALLOW(setpgid), ALLOW(getsid),
    ALLOW(setsid), ALLOW(kill), ALLOW(tkill), ALLOW(tgkill), ALLOW(pidfd_open), ALLOW(pidfd_send_signal),
    ALLOW(process_mrelease), ALLOW(ptrace), ALLOW(process_vm_readv), ALLOW(process_vm_writev),
    ALLOW(set_tid_address), ALLOW(set_robust_list), ALLOW(get_robust_list), ALLOW(rseq), ALLOW(futex),
    ALLOW(futex_waitv), ALLOW(futex_wake), ALLOW(futex_wait), ALLOW(futex_requeue), ALLOW(restart_syscall),
    {__NR_prctl, CHECK_PRCTL}, {__NR_personality, CHECK_PERSONALITY}, ALLOW(seccomp), ALLOW(landlock_create_ruleset),
    ALLOW(landlock_add_rule), ALLOW(landlock_restrict_self),
    /* signals and timers */
    ALLOW(rt_sigaction), ALLOW(rt_sigprocmask), ALLOW(rt_sigreturn), ALLOW(rt_sigpending), ALLOW(rt_sigtimedwait),
    ALLOW(rt_sigqueueinfo), ALLOW(rt_tgsigqueueinfo), ALLOW(rt_sigsuspend), ALLOW(sigaltstack), ALLOW(signalfd4),
    ALLOW(nanosleep), ALLOW(clock_nanosleep), ALLOW(clock_gettime), ALLOW(clock_getres), ALLOW(gettimeofday),
    ALLOW(times), ALLOW(getitimer), ALLOW(setitimer), ALLOW(timer_create), ALLOW(timer_settime), ALLOW(timer_gettime),
    ALLOW(timer_getoverrun), ALLOW(timer_delete), ALLOW(timerfd_create), ALLOW(timerfd_settime),
    ALLOW(timerfd_gettime),
    /* who it is, and its limits */
    ALLOW(getuid), ALLOW(geteuid), ALLOW(getgid), ALLOW(getegid), ALLOW(getresuid), ALLOW(getresgid), ALLOW(setuid),
    ALLOW(setgid), ALLOW(setreuid), ALLOW(setregid), ALLOW(setresuid), ALLOW(setresgid), ALLOW(setfsuid),
    ALLOW(setfsgid), ALLOW(getgroups), ALLOW(setgroups), ALLOW(capget), ALLOW(capset), ALLOW(umask), ALLOW(uname),
    ALLOW(sysinfo), ALLOW(getcpu), ALLOW(getrusage), ALLOW(getrlimit), {__NR_setrlimit, CHECK_SETRLIMIT},
    {__NR_prlimit64, CHECK_PRLIMIT}, ALLOW(getpriority), ALLOW(setpriority), ALLOW(ioprio_get), ALLOW(ioprio_set),
    ALLOW(sched_yield), ALLOW(sched_getaffinity), ALLOW(sched_setaffinity), ALLOW(sched_getparam),
    ALLOW(sched_setparam), ALLOW(sched_getscheduler), ALLOW(sched_setscheduler), ALLOW(sched_getattr),
    ALLOW(sched_setattr), ALLOW(sched_get_priority_max), ALLOW(sched_get_priority_min), ALLOW(sched_rr_get_interval),
    ALLOW(getrandom),
    /* files and folders */
    ALLOW(openat), ALLOW(openat2), ALLOW(close), ALLOW(close_range), ALLOW(read), ALLOW(write), ALLOW(readv),
    ALLOW(writev), ALLOW(pread64), ALLOW(pwrite64), ALLOW(preadv), ALLOW(pwritev), ALLOW(preadv2), ALLOW(pwritev2),
    ALLOW(lseek), ALLOW(sendfile), ALLOW(copy_file_range), ALLOW(splice), ALLOW(tee), ALLOW(vmsplice), ALLOW(fstat),
    ALLOW(newfstatat), ALLOW(statx), ALLOW(statfs), ALLOW(fstatfs), ALLOW(faccessat), ALLOW(faccessat2),
    ALLOW(getdents64), ALLOW(getcwd), ALLOW(chdir), ALLOW(fchdir), ALLOW(chroot), ALLOW(mkdirat), ALLOW(mknodat),
    ALLOW(unlinkat), ALLOW(linkat), ALLOW(symlinkat), ALLOW(readlinkat), ALLOW(renameat2), ALLOW(fchmod),
    ALLOW(fchmodat), ALLOW(fchmodat2), ALLOW(fchown), ALLOW(fchownat), ALLOW(utimensat), ALLOW(truncate),
    ALLOW(ftruncate), ALLOW(fallocate), ALLOW(fadvise64), ALLOW(readahead), ALLOW(sync), ALLOW(syncfs), ALLOW(fsync),
    ALLOW(fdatasync), ALLOW(sync_file_range), ALLOW(flock), ALLOW(dup), ALLOW(dup3), ALLOW(pipe2),
    {__NR_fcntl, CHECK_FCNTL}, {__NR_ioctl, CHECK_IOCTL}, ALLOW(name_to_handle_at), {__NR_setxattr, CHECK_SETXATTR},
    {__NR_lsetxattr, CHECK_SETXATTR}, {__NR_fsetxattr, CHECK_SETXATTR}, ALLOW(getxattr), ALLOW(lgetxattr), ALLOW(fgetxattr), ALLOW(listxattr),
    ALLOW(llistxattr), ALLOW(flistxattr), ALLOW(removexattr), ALLOW(lremovexattr), ALLOW(fremovexattr),
    ALLOW(inotify_init1), ALLOW(inotify_add_watch), ALLOW(inotify_rm_watch),
    /* waiting for several things */
    ALLOW(ppoll), ALLOW(pselect6), ALLOW(epoll_create1), ALLOW(epoll_ctl), ALLOW(epoll_pwait), ALLOW(epoll_pwait2),
    ALLOW(eventfd2),
    /* sockets */
    {__NR_socket, CHECK_SOCKET}, {__NR_socketpair, CHECK_SOCKETPAIR}, {__NR_setsockopt, CHECK_SETSOCKOPT},
    ALLOW(getsockopt), ALLOW(bind), ALLOW(listen), ALLOW(accept), ALLOW(accept4), ALLOW(connect), ALLOW(shutdown),
    ALLOW(getsockname), ALLOW(getpeername), ALLOW(sendto), ALLOW(recvfrom), ALLOW(sendmsg), ALLOW(recvmsg),
    ALLOW(sendmmsg), ALLOW(recvmmsg),
    /* System V and POSIX objects of its own ipc namespace */
    ALLOW(shmget), ALLOW(shmat), ALLOW(shmdt), ALLOW(shmctl), ALLOW(semget), ALLOW(semop), ALLOW(semtimedop),
    ALLOW(semctl), ALLOW(msgget), ALLOW(msgsnd), ALLOW(msgrcv), ALLOW(msgctl), ALLOW(mq_open), ALLOW(mq_unlink),
    ALLOW(mq_timedsend), ALLOW(mq_timedreceive), ALLOW(mq_notify), ALLOW(mq_getsetattr),
#ifdef __x86_64__
    /* older spellings of the same */
    ALLOW(arch_prctl), ALLOW(fork), ALLOW(vfork), ALLOW(getpgrp), ALLOW(alarm), ALLOW(pause), ALLOW(time),
    ALLOW(signalfd), ALLOW(open), ALLOW(creat), ALLOW(stat), ALLOW(lstat), ALLOW(access), ALLOW(getdents),
    ALLOW(mkdir), ALLOW(rmdir), ALLOW(mknod), ALLOW(unlink), ALLOW(link), ALLOW(symlink), ALLOW(readlink),
    ALLOW(rename), ALLOW(renameat), ALLOW(chmod), ALLOW(chown), ALLOW(lchown), ALLOW(utime), ALLOW(utimes),
    ALLOW(futimesat), ALLOW(dup2), ALLOW(pipe), ALLOW(inotify_init), ALLOW(poll), ALLOW(select), ALLOW(epoll_create),
    ALLOW(epoll_wait), ALLOW(eventfd),
#elif defined __aarch64__
    ALLOW(renameat),
#else
#error "no table of system calls for this architecture"
#endif
};
const size_t allowed_count = sizeof allowed_calls / sizeof *allowed_calls;

const unsigned refused_calls[] = {
    /* mounts and namespaces */
    __NR_mount, __NR_umount2, __NR_pivot_root, __NR_open_tree, __NR_move_mount, __NR_fsopen, __NR_fsconfig,
    __NR_fsmount, __NR_fspick, __NR_mount_setattr, __NR_unshare, __NR_setns, __NR_sethostname, __NR_setdomainname,
    /* large attack surface, or objects shared with the host */
    __NR_io_uring_setup, __NR_io_uring_enter, __NR_io_uring_register, __NR_io_setup, __NR_io_submit, __NR_io_destroy,
    __NR_io_getevents, __NR_io_cancel, __NR_userfaultfd, __NR_keyctl, __NR_add_key, __NR_request_key, __NR_bpf,
    __NR_perf_event_open, __NR_fanotify_init, __NR_fanotify_mark, __NR_open_by_handle_at, __NR_pidfd_getfd,
    __NR_kcmp, __NR_move_pages, __NR_migrate_pages,
    /* memory that not even the kernel sees, taken out of what it can move */
    __NR_memfd_secret,
    /* policies of shared memory stay when nothing is mapped any more, and are charged to nobody */
    __NR_mbind,
    /* the host's kernel, clock, disks and log */
    __NR_kexec_load, __NR_kexec_file_load, __NR_init_module, __NR_finit_module, __NR_delete_module, __NR_syslog,
    __NR_reboot, __NR_swapon, __NR_swapoff, __NR_acct, __NR_quotactl, __NR_quotactl_fd, __NR_settimeofday,
    __NR_clock_settime, __NR_adjtimex, __NR_clock_adjtime, __NR_vhangup, __NR_lookup_dcookie, __NR_nfsservctl,
#ifdef __x86_64__
    __NR_iopl, __NR_ioperm, __NR_modify_ldt, __NR__sysctl, __NR_sysfs, __NR_ustat, __NR_uselib,
#endif
};
const size_t refused_count = sizeof refused_calls / sizeof *refused_calls;

const unsigned told_calls[] = {__NR_sched_getaffinity, __NR_sysinfo};
const size_t told_count = sizeof told_calls / sizeof *told_calls;

/* Builders of images (decision 0033). Inside a user namespace of its own such a program is root over its own mounts;
 * all that the launcher mounted is locked there. No new file system, no network namespace, no setns. */
const struct call nested_calls[] = {
    {__NR_clone, CHECK_NESTED_CLONE}, {__NR_unshare, CHECK_NESTED_CLONE}, {__NR_mount, CHECK_NESTED_MOUNT},
    ALLOW(umount2), ALLOW(sethostname),
};
const size_t nested_count = sizeof nested_calls / sizeof *nested_calls;
