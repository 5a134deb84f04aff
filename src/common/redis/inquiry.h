/*
 * inquiry.h - a topology's question to one server, and how long to wait before trying again.
 *
 * The answer is taken in the topology's step, not in done: there servers may be dropped and new
 * questions asked, while done is called from the middle of the client's work.
 */
#ifndef KVW_REDIS_INQUIRY_H
#define KVW_REDIS_INQUIRY_H

#include "redis/topology.h"

#define KVW_REDIS_INQUIRY_REQUEST 512

/* One at a time; all zeroes is one that asks nothing. */
struct kvw_redis_inquiry {
	enum { KVW_REDIS_INQUIRY_IDLE, KVW_REDIS_INQUIRY_OUT, KVW_REDIS_INQUIRY_BACK } state;
	struct kvw_redis_command command;
	struct iovec part;
	char request[KVW_REDIS_INQUIRY_REQUEST];
};

/* Asks server: the words of one command, at most four. It is IDLE. element_limit: for an array of
 * at most as many bytes. */
void kvw_redis_inquiry_ask(struct kvw_redis_inquiry *q, struct kvw_redis *r,
	struct kvw_redis_server *server, const char *const *words, size_t count,
	uint32_t element_limit, int64_t deadline_ns);

/* BACK: the array that was asked for has come. False: it has not; why is filled in. */
bool kvw_redis_inquiry_answered(const struct kvw_redis_inquiry *q, char *why, size_t room);

/* BACK to IDLE; releases the answer. */
void kvw_redis_inquiry_finish(struct kvw_redis_inquiry *q);

/* For a command that was redirected this often: how long it waits before it is sent again, so that
 * servers that point at each other do not keep a processor busy. */
int64_t kvw_redis_inquiry_pause_ns(struct kvw_redis *r, uint32_t redirects);

#endif
