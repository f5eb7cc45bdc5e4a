/* The numbers of the protocol: PROTOCOL.md in C. Never reuse a number. */
#ifndef PROTOCOL_H
#define PROTOCOL_H

enum { PROTOCOL_VERSION = 2, PROTOCOL_OLDEST = 1 };
/* From this version on the host is told what became of each STDIN and STDIN_EOF. */
enum { VERSION_TAKEN = 2 };

enum {
    HEADER_SIZE = 5,                /* u32 length of the payload, u8 type */
    MAX_PAYLOAD = 256 * 1024,
    TLV_HEADER = 6,                 /* u16 tag, u32 length */
    MAX_ID = 64,
    MAX_TAG = 1024,
    PORT_INSIDE = 65536,            /* in ANNOUNCE: the socket that LISTEN named by PATH */
    MAX_NAME = 64,                  /* of a file that DESCRIBE writes */
    MAX_CONTENT = 64 * 1024,        /* of it */
    MAX_AFTER = 32 * 1024,          /* longer than any path that a listing can name */
    MAX_ATTRIBUTE = 255,            /* the name of an extended attribute, as the kernel has it */
    MAX_ATTRIBUTES = 4096,          /* names and values that are told of one file */
};

enum frame {
    /* host to guest */
    F_HELLO = 0x01, F_PING = 0x02,
    F_RUN = 0x10, F_ATTACH = 0x11, F_LIST = 0x12, F_SIGNAL = 0x13, F_STDIN = 0x14, F_STDIN_EOF = 0x15,
    F_RESIZE = 0x16, F_FORGET = 0x17,
    F_STAT = 0x20, F_LISTDIR = 0x21, F_READ = 0x22, F_WRITE = 0x23, F_MKDIR = 0x24, F_MOVE = 0x25,
    F_REMOVE = 0x26, F_WATCH = 0x27, F_COMMIT = 0x28,
    F_CONNECT = 0x30, F_LISTEN = 0x31, F_ACCEPT = 0x32, F_UNLISTEN = 0x33, F_DESCRIBE = 0x34,
    /* both ways */
    F_DATA = 0x40,
    /* guest to host */
    F_WELCOME = 0x81, F_DONE = 0x82, F_ERROR = 0x83,
    F_STARTED = 0x90, F_STDOUT = 0x91, F_STDERR = 0x92, F_DROPPED = 0x93, F_EXIT = 0x94, F_PROCESS = 0x95,
    F_TAKEN = 0x96,
    F_FILE = 0xA0, F_ENTRIES = 0xA1, F_EVENTS = 0xA2,
    F_ANNOUNCE = 0xB0,
};

enum tag {
    T_VERSION = 1, T_OLDEST = 2,
    T_ID = 10, T_ARG = 11, T_ENV = 12, T_CWD = 13, T_USER = 14, T_TAG = 15, T_COLS = 16, T_ROWS = 17,
    T_FLAGS = 18, T_SIGNAL = 19, T_PID = 20, T_STARTED_AT = 21, T_CODE = 22, T_STREAM = 23, T_COUNT = 24,
    T_FROM_STDOUT = 25, T_FROM_STDERR = 26, T_TAKEN = 27,
    T_PATH = 30, T_TARGET = 31, T_MODE = 32, T_OFFSET = 33, T_LENGTH = 34, T_DEPTH = 35, T_KIND = 36,
    T_SIZE = 37, T_UID = 38, T_GID = 39, T_MTIME = 40, T_LINK = 41, T_ENTRY = 42, T_CHANGE = 43,
    T_AFTER = 44, T_LIMIT = 45, T_ATTRIBUTES = 46, T_ATTRIBUTE = 47,
    T_PORT = 50, T_CALL = 51, T_CONTENT = 52,
    T_ERRNO = 60, T_STAGE = 61,
};

enum flag {
    FLAG_STDIN = 1 << 0,
    FLAG_CGROUP = 1 << 1,           /* a cgroup.procs fd comes with this request */
    FLAG_FORGET = 1 << 2,           /* forget the process once its EXIT was sent */
    FLAG_PARENTS = 1 << 3,
    FLAG_OVERWRITE = 1 << 4,
    FLAG_RECURSIVE = 1 << 5,
    FLAG_FOLLOW = 1 << 6,
    FLAG_GROUP = 1 << 7,            /* signal the whole process group */
    FLAG_TERMINAL = 1 << 8,
    FLAG_INPUT = 1 << 9,            /* attach for its input only */
    FLAG_MORE = 1 << 10,            /* of a page: others follow */
    FLAG_REFUSED = 1 << 11,         /* of an EXIT: while it ran somebody was refused a process */
};

/* Where an error arose: the host turns stage and errno into one typed error. */
enum stage {
    S_REQUEST = 1, S_FORK = 2, S_CGROUP = 3, S_TERMINAL = 4, S_USER = 5, S_CWD = 6, S_EXEC = 7, S_STDIO = 8,
    S_PROCESS = 9, S_LIMIT = 10, S_PATH = 11, S_NOT_REGULAR = 12, S_TARGET = 13, S_CONNECT = 14, S_WATCH = 15,
    S_VERSION = 16, S_LISTEN = 17,
};

enum kind { KIND_FILE = 1, KIND_DIRECTORY = 2, KIND_SYMLINK = 3, KIND_OTHER = 4 };
enum change { CHANGE_CREATED = 1, CHANGE_MODIFIED = 2, CHANGE_REMOVED = 3, CHANGE_MOVED = 4, CHANGE_OVERFLOW = 5 };

#endif
