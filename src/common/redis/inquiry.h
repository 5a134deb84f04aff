/*
 * inquiry.h - a question of a topology to one server, and the pause before another try.
 *
 * The topology reads the answer in its step function, not in the command's done callback: a step
 * may drop servers and ask again, while done is called in the middle of the client's work.
 */
#ifndef KVW_REDIS_INQUIRY_H
#define KVW_REDIS_INQUIRY_H

#include "redis/topology.h"

#define KVW_REDIS_INQUIRY_REQUEST 512

/* A question, of which there is one at a time. All zeroes: none. */
struct kvw_redis_inquiry {
	enum { KVW_REDIS_INQUIRY_IDLE, KVW_REDIS_INQUIRY_OUT, KVW_REDIS_INQUIRY_BACK } state;
	struct kvw_redis_command command;
	struct iovec part;
	char request[KVW_REDIS_INQUIRY_REQUEST];
};

/* Sends one command of at most four words to a server. q must be IDLE. element_limit: most bytes of
 * the array in the answer. */
void kvw_redis_inquiry_ask(struct kvw_redis_inquiry *q, struct kvw_redis *r,
	struct kvw_redis_server *server, const char *const *words, size_t count,
	uint32_t element_limit, int64_t deadline_ns);

/* To be called in state BACK. Returns true if the array has arrived; otherwise `why` has the
 * reason. */
bool kvw_redis_inquiry_answered(const struct kvw_redis_inquiry *q, char *why, size_t room);

/* Frees the answer, and changes the state from BACK to IDLE. */
void kvw_redis_inquiry_finish(struct kvw_redis_inquiry *q);

/* Returns how long to wait before a command that was redirected so many times is sent again, so
 * that servers that redirect to each other do not keep a processor busy. */
int64_t kvw_redis_inquiry_pause_ns(struct kvw_redis *r, uint32_t redirects);

#endif
