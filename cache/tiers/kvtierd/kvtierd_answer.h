/*
 * kvtierd_answer.h - answers of a storage daemon: HTTP heads and bodies, leases as JSON.
 *
 * The daemon is another program, perhaps of another make, and its bytes are checked like any stranger's: heads by the
 * parser of src/common/http, bodies and numbers by their bounds. These functions do no I/O; the fuzzer feeds them.
 */
#ifndef KVT_TIERED_ANSWER_H
#define KVT_TIERED_ANSWER_H

#include <stdbool.h>

#include "chunk/slots.h"
#include "http/body.h"
#include "kvtier/kvtier.h"

#define KVTIERD_HEAD_ROOM 8192u
#define KVTIERD_BODY_ROOM                                                                           \
	(128u * 1024)                 /* bytes kept of a body; a longer one is read to its end, and cut */
#define KVTIERD_BODY_MOST  (16u << 20) /* a longer body answers no request of this tier */
#define KVTIERD_ID_BYTES   129u        /* bytes of a lease's id, including its NUL */
#define KVTIERD_MAX_PIECES 2048u       /* most fragments of one object */

/* Reads one answer after another from one connection. */
struct kvtierd_reader {
	struct kvw_head head;
	char *head_bytes; /* KVTIERD_HEAD_ROOM, owned */
	size_t head_len;  /* used bytes of head_bytes */
	size_t searched;
	struct kvw_body body;
	char *text;      /* the body, room for KVTIERD_BODY_ROOM, owned */
	size_t text_len; /* kept bytes */
	bool in_body;
	bool begun; /* some byte of this answer was fed */
	bool cut;   /* the body was longer than the kept bytes */
	/* results, once feed returned KVT_OK; until the next begin */
	int status;
	bool keep_alive;
	bool json;         /* the Content-Type is JSON, or absent */
	bool kvtierd;      /* the Server field names kvtierd */
	bool quota;        /* a tenant's limit refused the request, not a lack of room */
	bool later;        /* to be repeated later: the answer does not show whether the object is there */
	const char *error; /* after KVT_ECORRUPT: the mistake, static */
};

enum kvt_status kvtierd_reader_init(struct kvtierd_reader *r) KVT_MUST_CHECK; /* KVT_ENOMEM */
void kvtierd_reader_finish(struct kvtierd_reader *r);                         /* zeroed is allowed */
void kvtierd_reader_begin(struct kvtierd_reader *r); /* forgets the bytes fed so far */

/* KVT_OK: the answer is complete, *used of len bytes belong to it. KVT_MISS: more bytes are needed, all were used.
 * KVT_ECORRUPT: not an answer; `error`. Interim answers (1xx) are skipped. */
enum kvt_status kvtierd_reader_feed(
	struct kvtierd_reader *r, const char *data, size_t len, size_t *used) KVT_MUST_CHECK;

/* The peer has closed: KVT_OK if that completes the answer, else KVT_ECORRUPT. */
enum kvt_status kvtierd_reader_close(struct kvtierd_reader *r) KVT_MUST_CHECK;

/* A run of bytes in the segment. */
struct kvtierd_piece {
	uint64_t offset, bytes;
};

/* A granted lease. */
struct kvtierd_lease {
	char id[KVTIERD_ID_BYTES];
	struct kvtierd_piece *pieces; /* owned; NULL: none */
	uint32_t count;
	uint64_t bytes; /* sum of the pieces */
};

/*
 * Reads {"id": ..., "offsets": [{"offset": N, "len": N}, ...]}; ignores unknown members. KVT_OK; KVT_MISS: a lease of
 * no bytes; KVT_ECORRUPT: not such a text, or impossible numbers. With any result but KVT_ENOMEM, out->id is "" or
 * names a lease that must be released; pieces are set with KVT_OK only. Free with kvtierd_lease_finish.
 */
enum kvt_status kvtierd_lease_parse(
	const char *text, size_t len, struct kvtierd_lease *out) KVT_MUST_CHECK;
/* Reads {"id": HEX, "more": false, "sum": NUMBER, "changes": [[SLOT, NUMBER], ...]}: the results of a question about
 * generations. KVT_ECORRUPT: not such a text. */
enum kvt_status kvtierd_table_parse(const char *text, size_t len, struct kvt_table_ask *out) KVT_MUST_CHECK;
void kvtierd_lease_finish(struct kvtierd_lease *lease); /* zeroed is allowed */

/* Returns whether all pieces lie within a segment of that many bytes. */
bool kvtierd_lease_fits(const struct kvtierd_lease *lease, uint64_t segment_bytes);

#endif
