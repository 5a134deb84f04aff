/*
 * daemon_wire.h - requests to a tiered-storage daemon and its answers, as little as a load needs.
 *
 * Objects are named by a number. Requests carry what the stock client sends. An answer must have a
 * Content-Length, else the program ends: nothing that is measured here sends one without.
 */
#ifndef KVB_DAEMON_WIRE_H
#define KVB_DAEMON_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define KVB_REQUEST_ROOM 512u
#define KVB_ANSWER_ROOM  16384u
#define KVB_LEASE_ROOM   128u
#define KVB_BUCKET       "bench"

/* Each writes the head of a request and returns its length. */
size_t kvb_put_head(char out[KVB_REQUEST_ROOM], uint64_t object, uint64_t bytes);
/* Writes the head of a request for a lease, with the stock client's timeout and TTL. */
size_t kvb_lease_head(char out[KVB_REQUEST_ROOM], uint64_t object);
size_t kvb_release_head(char out[KVB_REQUEST_ROOM], const char *lease);

struct kvb_answer {
	int status;
	const char *body; /* body of the answer, in the text that was parsed */
	size_t body_bytes;
};

/* Parses the first complete answer in a text; returns its bytes, 0 if there is none yet. */
size_t kvb_answer_parse(const char *text, size_t bytes, struct kvb_answer *out);

/* Reads the id of a granted lease; ends the program if there is none, or it has no bytes. */
void kvb_answer_lease(const struct kvb_answer *answer, char out[KVB_LEASE_ROOM]);

/* Waits for an answer on a blocking socket; text has KVB_ANSWER_ROOM bytes. */
void kvb_answer_wait(int fd, char *text, struct kvb_answer *out);

#endif
