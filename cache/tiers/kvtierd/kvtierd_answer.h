/*
 * kvtierd_answer.h - answers of a storage daemon: HTTP heads and bodies, leases as JSON.
 *
 * The daemon is another program, perhaps of another make, and its bytes are checked like any
 * stranger's: heads by the parser of src/common/http, bodies and numbers by their bounds. These
 * functions do no I/O, so that a fuzz test can call them.
 */
#ifndef KVT_TIERED_ANSWER_H
#define KVT_TIERED_ANSWER_H

#include <stdbool.h>

#include "chunk/slots.h"
#include "http/body.h"
#include "kvtier/kvtier.h"

#define KVTIERD_HEAD_ROOM 8192u
#define KVTIERD_BODY_ROOM                                                                           \
	(128u * 1024) /* most bytes of a body that are kept; the rest is read and dropped */
/* no answer to this tier has a longer body, so the connection is closed then */
#define KVTIERD_BODY_MOST  (16u << 20)
#define KVTIERD_ID_BYTES   129u        /* bytes of a lease's id, including its NUL */
#define KVTIERD_MAX_PIECES 2048u       /* most fragments of one object */

/* Reads one answer after another from one connection. */
struct kvtierd_reader {
	struct kvw_head head;
	char *head_bytes; /* KVTIERD_HEAD_ROOM, owned */
	size_t head_len;  /* used bytes of head_bytes */
	size_t searched;
	struct kvw_body body;
	char *text;      /* buffer for the body, KVTIERD_BODY_ROOM bytes, owned */
	size_t text_len; /* kept bytes */
	bool in_body;
	bool begun; /* at least one byte of the present answer was fed */
	bool cut;   /* the body was longer than the buffer `text` */
	/* The members below are results: set once feed returned KVT_OK, valid until the next
	 * begin. */
	int status;
	bool keep_alive;
	bool json;         /* the Content-Type is JSON, or absent */
	bool kvtierd;      /* the Server field names kvtierd */
	bool quota;        /* a refusal was for a limit of the tenant, not for lack of room */
	/* the request should be repeated later: the answer does not show whether the object is
	 * there */
	bool later;
	const char *error; /* after KVT_ECORRUPT: a static text that names the mistake */
};

enum kvt_status kvtierd_reader_init(struct kvtierd_reader *r) KVT_MUST_CHECK; /* KVT_ENOMEM */
void kvtierd_reader_finish(struct kvtierd_reader *r); /* zeroed is allowed */
/* begins a new answer: forgets all bytes fed so far */
void kvtierd_reader_begin(struct kvtierd_reader *r);

/* Feeds `len` bytes. KVT_OK: the answer is complete, and *used of the bytes belong to it. KVT_MISS:
 * all bytes were used, and more are needed. KVT_ECORRUPT: these bytes are no answer, and r->error
 * has the reason. Interim answers (1xx) are skipped. */
enum kvt_status kvtierd_reader_feed(
	struct kvtierd_reader *r, const char *data, size_t len, size_t *used) KVT_MUST_CHECK;

/* Called when the peer has closed the connection. KVT_OK: the answer is thereby complete; otherwise
 * KVT_ECORRUPT. */
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
	uint64_t bytes; /* sum of the pieces' lengths */
};

/*
 * Reads {"id": ..., "offsets": [{"offset": N, "len": N}, ...]}; ignores unknown members. KVT_OK;
 * KVT_MISS: a lease of no bytes; KVT_ECORRUPT: the text is not of this form, or has impossible
 * numbers. With any result but KVT_ENOMEM, out->id is "" or names a lease that must be released;
 * the pieces are set with KVT_OK only. Free *out with kvtierd_lease_finish.
 */
enum kvt_status kvtierd_lease_parse(
	const char *text, size_t len, struct kvtierd_lease *out) KVT_MUST_CHECK;
/* Reads {"id": HEX, "more": false, "sum": NUMBER, "changes": [[SLOT, NUMBER], ...]}, the daemon's
 * answer to a question about generations. KVT_ECORRUPT: the text is not of this form. */
enum kvt_status kvtierd_table_parse(const char *text, size_t len, struct kvt_table_ask *out) KVT_MUST_CHECK;
void kvtierd_lease_finish(struct kvtierd_lease *lease); /* zeroed is allowed */

/* Returns whether all pieces lie within a segment of that many bytes. */
bool kvtierd_lease_fits(const struct kvtierd_lease *lease, uint64_t segment_bytes);

#endif
