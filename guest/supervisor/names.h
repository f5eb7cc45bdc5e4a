/* Names and the addresses that stand for them, inside a sandbox with a way out. */
#ifndef NAMES_H
#define NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { MAX_HOST = 253, DNS_ROOM = 4096 };

/* names.c: addresses are numbers, as they are read */
uint32_t names_address(const char *name);
bool names_find(uint32_t address, char name[MAX_HOST + 1]);
void names_open(int datagrams, int streams);
void names_watch(void);
void names_asked(void);                 /* somebody asks, and nobody answers yet */
void names_reaped(pid_t pid);

/* dns.c: `out` has DNS_ROOM bytes. How many of them are the answer; 0: none is due. */
size_t dns_answer(const uint8_t *question, size_t len, uint8_t *out);

#endif
