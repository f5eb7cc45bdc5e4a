/* The client's own pieces, seen by each other. See main.c for what it is. */
#ifndef CLIENT_H
#define CLIENT_H

#include <stdbool.h>
#include <stddef.h>

/* Those of the platform's other clients. */
enum exit_code { DONE = 0, FAILED = 1, WRONG_USAGE = 2, NOT_AUTHENTICATED = 3, REFUSED = 4, UNAVAILABLE = 5 };

/* What is sent: the head and the body of one request. */
struct message {
    char *data;
    size_t len, cap;
};

void put(struct message *m, const void *data, size_t len);
void put_text(struct message *m, const char *text);
_Noreturn void die(enum exit_code code, const char *why, ...) __attribute__((format(printf, 2, 3)));

/* http.c: sends a request and writes the body of the answer to stdout as it comes; the code that it stands for. */
enum exit_code exchange(int line, const struct message *request, bool is_head);

#endif
