/*
 * support.h - two ends of a TLS connection in one thread, with a wire between them that tests own.
 *
 *   end a <-> socket pair <-> wire <-> socket pair <-> end b
 *
 * The wire passes at most `step` bytes a turn and direction, so that every way in which a record can
 * be cut is seen. It looks at the bytes too: record headers are counted.
 */
#ifndef KVW_TEST_TLS_SUPPORT_H
#define KVW_TEST_TLS_SUPPORT_H

#include <check.h>

#include "tls/tls.h"

/* PEM files in a new folder. */
struct files {
	char folder[64];
	char ca[96], cert[96], key[96], other_key[96], locked_key[96];
};

/* CA-signed certificate for DNS:localhost and IP:127.0.0.1. */
void files_make(struct files *files);
void files_make_ending(struct files *files, long ends_in_s); /* the server's certificate */
void files_remove(const struct files *files);

/* One direction of the wire. */
struct flow {
	size_t step;    /* bytes a turn; 0: stopped */
	bool ended;     /* its sender has closed */
	size_t passed;
	size_t records; /* of application data, begun */
	size_t header;  /* bytes of the present record's header seen */
	size_t left;    /* bytes of the present record's payload to come */
	unsigned char head[5];
	size_t flip_at; /* byte to damage, counted as `passed`; SIZE_MAX: none */
};

/* One end. */
struct end {
	struct kvw_io io; /* first */
	size_t events;
	bool early; /* an event was reported before the handshake had ended, without a failure */
	int wire;   /* the wire's socket on this side; -1: closed */
};

struct link {
	struct kvw_io_set set;
	struct end a, b;      /* a: client, b: server */
	struct flow up, down; /* a to b, b to a */
};

/* Sockets with small buffers; TLS is not begun. */
void link_open(struct link *link, size_t step);
void link_close(struct link *link);

/* One turn: reports events to the ends and moves the wire. True if anything happened. */
bool link_turn(struct link *link);

/* Turns until nothing happens any more; fails after very many. Returns how many. */
size_t link_settle(struct link *link);

/* Begins TLS on both ends and completes the handshake. */
void link_begin(struct link *link, struct kvw_tls *client, struct kvw_tls *server);

#endif
