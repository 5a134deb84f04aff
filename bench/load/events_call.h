/*
 * events_call.h - requests of kvb-events, over blocking sockets. A peer that takes no byte and
 * sends none for ten seconds has failed.
 */
#ifndef KVB_EVENTS_CALL_H
#define KVB_EVENTS_CALL_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

/* Returns a connected socket; -1: there is none. */
int kvb_call_connect(const struct sockaddr_in *to);
bool kvb_call_send(int fd, const char *data, size_t len);
/* Reads one answer with a Content-Length, and ends it with a NUL. True: its status was 200, and it
 * had room. */
bool kvb_call_answer(int fd, char *answer, size_t room);

#endif
