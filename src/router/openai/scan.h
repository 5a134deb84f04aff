/*
 * scan.h - one pass over a request body: model, prompt, stream, session key.
 *
 * No DOM. While the body arrives only content is hashed, segment by segment (tools, system, each
 * message); kvw_scan_finish folds the segments in canonical order into the chain that routing
 * compares. The chain depends on what the prompt means, not on how it is spelt: escapes, white
 * space and the order of keys do not matter; role, tool, image, model, LoRA name and salt do.
 *
 * A body that is not what its path promises (not JSON, wrong types) is never guessed at:
 * kvw_scan_finish says KVW_EPROTO and the request goes by load, among the workers of its model if
 * that was found; its worker owns the error message.
 * A valid body without a prompt, or with one in a form that is not understood (embeddings as the
 * prompt, what a previous response is the beginning of), gives KVW_OK with content_known false.
 *
 * On KVW_API_AUDIO a body may also be a form (multipart/form-data).
 *
 * On KVW_API_INVOCATIONS the body says what it is: with `messages` a chat, with `prompt`, or LMI's
 * `inputs`, a completion, with `input` one for embeddings, else one of KVW_API_RERANK. Members come
 * in any order, so all are read until the end; its chain is then the one that it would have on that
 * path. out->api of kvw_scan_finish says which it was, and stays as it is if that failed.
 *
 * Of KVW_API_GENERATE and KVW_API_CHAT_BATCH, likewise, out->api is KVW_API_COMPLETIONS and
 * KVW_API_CHAT: these are such requests in another form, with the chains that they would have
 * there.
 *
 * Threads: a scan belongs to one thread. Memory: a scan keeps its arrays over kvw_scan_reset(), up
 * to 1 MiB, so that one per loop slot serves many requests without allocating; bounded by the
 * body's length (64 bytes per 256 bytes of prompt, more for very short pieces, see scan_state.h).
 */
#ifndef KVW_SCAN_H
#define KVW_SCAN_H

#include "kvway/err.h"
#include "kvway/route_request.h"

#define KVW_SCAN_MAX_SESSION_FIELDS 8 /* bits of struct frame */

/* Borrowed by every scan made with it. */
struct kvw_scan_options {
	/* String fields, first in this list wins; a.b is b in the object a. */
	const char *const *session_fields;
	size_t session_field_count;        /* at most KVW_SCAN_MAX_SESSION_FIELDS */
};

struct kvw_scan;

enum kvw_err kvw_scan_create(
	const struct kvw_scan_options *options, struct kvw_scan **out) KVW_MUST_CHECK;
void kvw_scan_destroy(struct kvw_scan *scan); /* NULL is allowed */

/* Begins a new body. Forgets everything borrowed from the last one. */
void kvw_scan_reset(struct kvw_scan *scan, enum kvw_api api);

/* After reset, for a router that does not compare prompts: the body is checked and its fields
 * (model, stream, session) are found, but its text is not hashed; content_known will be false. */
void kvw_scan_fields_only(struct kvw_scan *scan);

/* After reset, for a router that compares prompts by their exact tokens: the ids of a prompt of
 * token ids are kept, four bytes each. */
void kvw_scan_keep_ids(struct kvw_scan *scan);

/* After reset: the places of these members are noted that direct the engine (bits,
 * by engine_fields.h). */
void kvw_scan_watch_fields(struct kvw_scan *scan, uint32_t fields);

/* Takes the next bytes, cut anywhere. They are not kept: the caller may reuse the buffer. */
void kvw_scan_feed(struct kvw_scan *scan, const char *data, size_t len);

/*
 * Ends the body and fills *out, borrowed until reset or destroy. out->tokens_per_unit is left to
 * the caller, and so is a session key from header or cookie.
 * KVW_EPROTO: not the JSON that this path promises; out holds api alone (content_known false).
 * KVW_ENOMEM: likewise.
 */
enum kvw_err kvw_scan_finish(struct kvw_scan *scan, struct kvw_route_request *out) KVW_MUST_CHECK;

/* After a kvw_scan_finish that said KVW_OK: a hash of a chat's beginning, to the end of what its
 * user says first;
 * 0: it has none, or it was not read. Every later turn of the conversation has the same. */
uint64_t kvw_scan_opening(const struct kvw_scan *scan);

/* After the same: temperature is 0, so that the likeliest token is taken each time.
 * Of chat and completions alone. */
bool kvw_scan_greedy(const struct kvw_scan *scan);

/* The model's name, once all of it was fed, even if the rest of the body is missing or broken; len
 * 0: not found yet. Borrowed until more is fed. */
struct kvw_slice kvw_scan_model(const struct kvw_scan *scan);
/* False: nothing will be found in what is fed from now on. */
bool kvw_scan_goes_on(const struct kvw_scan *scan);

/* How the exact tokens of a prompt can be had. */
enum kvw_prompt_form {
	/* In no way: several prompts, images or audio, tools that are converted, ... */
	KVW_FORM_NONE,
	KVW_FORM_IDS,     /* the body holds them */
	KVW_FORM_PLAIN,   /* vLLM's /tokenize makes of this body what the path itself would */
	KVW_FORM_CONVERT, /* ... of the same prompt in another body, if at all */
};

/* What a router that compares exact tokens needs besides the chain. Borrowed as the chain is. */
struct kvw_scan_exact {
	enum kvw_prompt_form form;
	struct kvw_slice cache_salt; /* len 0: none */
	const uint32_t *ids;         /* KVW_FORM_IDS, with kvw_scan_keep_ids */
	size_t id_count;
};

/* After a kvw_scan_finish that said KVW_OK. */
void kvw_scan_exact(const struct kvw_scan *scan, struct kvw_scan_exact *out);

/* --- changing a body (splice.h) --- */

#define KVW_SCAN_PLACES 16 /* duplicates and all */

/* What a place is; from KVW_PLACE_FIELD on a member that directs the engine (engine_fields.h). */
enum kvw_place_kind { KVW_PLACE_MODEL, KVW_PLACE_SALT, KVW_PLACE_FIELD = 32 };

/* The value of a top-level `model` or `cache_salt`, quotes and all, or of a form's `model`: bytes
 * of what was fed. Likewise of members that direct the engine, if these are watched; white space
 * behind it may belong to it. */
struct kvw_scan_place {
	uint64_t begin, end;
	uint8_t kind;
};

/* Where a body can be changed. */
struct kvw_scan_places {
	bool form;     /* else JSON */
	bool empty;    /* the object has no member */
	bool too_many; /* there are more than these */
	bool fields;   /* some are of KVW_PLACE_FIELD */
	uint64_t open; /* behind the object's opening brace */
	uint32_t count;
	struct kvw_scan_place items[KVW_SCAN_PLACES]; /* ascending */
};

/* Once the whole body was fed. Borrowed until reset or destroy. */
const struct kvw_scan_places *kvw_scan_places(const struct kvw_scan *scan);
/* The body's own salt. *there: it has one, which may be empty.
 * Borrowed until more is fed or set. */
struct kvw_slice kvw_scan_salt(const struct kvw_scan *scan, bool *there);
/* Between the last feed and kvw_scan_finish, which may be called again: the body will have this
 * salt, this model. What the scan lent before is gone. False: out of memory. */
bool kvw_scan_set_salt(struct kvw_scan *scan, struct kvw_slice salt) KVW_MUST_CHECK;
bool kvw_scan_set_model(struct kvw_scan *scan, struct kvw_slice model) KVW_MUST_CHECK;

/* Does its `kv_transfer_params` refuse fragments? That has to stand when the rest of them goes. */
bool kvw_scan_exact_only(const struct kvw_scan *scan);

/* Bytes that the scan holds now, for the gauge of request memory. */
size_t kvw_scan_memory(const struct kvw_scan *scan);

#endif
