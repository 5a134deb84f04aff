/*
 * scan.h - reads model, prompt, stream and session key from a request body, in one pass.
 *
 * No tree is built. While the body arrives the scan hashes only content, segment by segment (tools,
 * system, each message); kvw_scan_finish folds the segments in canonical order into the chain that
 * routing compares. The chain depends on the prompt's meaning, not on its spelling: escapes, white
 * space and the order of keys do not matter; role, tool, image, model, LoRA name and salt do.
 *
 * For a body that violates its path's format (not JSON, wrong types) kvw_scan_finish returns
 * KVW_EPROTO and the request is routed by load, among the workers of its model if that was found;
 * its worker writes the error message. A valid body without a prompt, or with one in an unknown
 * form (embeddings, the continuation of a previous response), gives KVW_OK with content_known
 * false.
 *
 * On KVW_API_AUDIO a body may also be a form (multipart/form-data).
 *
 * On KVW_API_INVOCATIONS the body decides the API: with `messages` a chat, with `prompt`, or LMI's
 * `inputs`, a completion, with `input` one for embeddings, else one of KVW_API_RERANK. Members come
 * in any order, so that all are read until the end; the body's chain is then the same as on the
 * API's own path. kvw_scan_finish sets out->api to the API that was found, and leaves it unchanged
 * on failure.
 *
 * Likewise, KVW_API_GENERATE and KVW_API_CHAT_BATCH become KVW_API_COMPLETIONS and KVW_API_CHAT in
 * out->api: these are such requests in another form, with the same chains.
 *
 * Threads: a scan belongs to one thread. Memory: a scan keeps its arrays over kvw_scan_reset(), up
 * to 1 MiB, so that one per loop slot serves many requests without allocating; bounded by the
 * body's length (64 bytes per 256 bytes of prompt, more for very short pieces, see scan_state.h).
 */
#ifndef KVW_SCAN_H
#define KVW_SCAN_H

#include "kvway/err.h"
#include "kvway/route_request.h"

#define KVW_SCAN_MAX_SESSION_FIELDS 8 /* each is a bit in struct frame */

/* Borrowed by every scan that is made with it. */
struct kvw_scan_options {
	/* Names of string fields; the first one that the body has counts; a.b is the member b of
	 * the object a. */
	const char *const *session_fields;
	size_t session_field_count;        /* at most KVW_SCAN_MAX_SESSION_FIELDS */
};

struct kvw_scan;

enum kvw_err kvw_scan_create(
	const struct kvw_scan_options *options, struct kvw_scan **out) KVW_MUST_CHECK;
void kvw_scan_destroy(struct kvw_scan *scan); /* NULL is allowed */

/* Begins a new body. Everything that was borrowed for the last body becomes invalid. */
void kvw_scan_reset(struct kvw_scan *scan, enum kvw_api api);

/* Called after reset, by a router that does not compare prompts: the body is checked and its fields
 * (model, stream, session) are found, but its text is not hashed; content_known will be false. */
void kvw_scan_fields_only(struct kvw_scan *scan);

/* Called after reset, by a router that compares prompts by their exact tokens: if the prompt
 * consists of token ids they are kept, four bytes each. */
void kvw_scan_keep_ids(struct kvw_scan *scan);

/* Called after reset: records the places of these members, which control the engine (bits, by
 * engine_fields.h). */
void kvw_scan_watch_fields(struct kvw_scan *scan, uint32_t fields);

/* Takes the next bytes of the body, cut anywhere. The scan keeps none of them, so that the caller
 * may reuse the buffer. */
void kvw_scan_feed(struct kvw_scan *scan, const char *data, size_t len);

/*
 * Ends the body and fills *out, which is borrowed until reset or destroy. The caller sets
 * out->tokens_per_unit, and a session key from header or cookie. KVW_EPROTO: not the JSON of this
 * path; only out->api is set (content_known false). KVW_ENOMEM: likewise.
 */
enum kvw_err kvw_scan_finish(struct kvw_scan *scan, struct kvw_route_request *out) KVW_MUST_CHECK;

/* Returns, after a successful kvw_scan_finish, a hash of a chat's beginning, up to the end of its
 * first user message; it is equal in every later turn of the conversation. 0: there is no such
 * beginning, or it was not read. */
uint64_t kvw_scan_opening(const struct kvw_scan *scan);

/* Returns, after a successful kvw_scan_finish, whether the temperature is 0, so that sampling is
 * greedy. Only for chat and completions. */
bool kvw_scan_greedy(const struct kvw_scan *scan);

/* Returns the model's name, once all of it was fed, even if the rest of the body is missing or
 * broken; len 0: not found yet. Borrowed until more is fed. */
struct kvw_slice kvw_scan_model(const struct kvw_scan *scan);
/* Returns whether further bytes can change the result. */
bool kvw_scan_goes_on(const struct kvw_scan *scan);

/* How to get the exact tokens of a prompt. */
enum kvw_prompt_form {
	/* There is no way: several prompts, images or audio, tools that are converted, ... */
	KVW_FORM_NONE,
	KVW_FORM_IDS,     /* the body has the token ids */
	KVW_FORM_PLAIN,   /* vLLM's /tokenize of this body gives the same tokens */
	KVW_FORM_CONVERT, /* vLLM's /tokenize gives the same tokens if the body can be converted */
};

/* Data that a router which compares exact tokens needs besides the chain. Borrowed as the chain
 * is. */
struct kvw_scan_exact {
	enum kvw_prompt_form form;
	struct kvw_slice cache_salt; /* len 0: none */
	const uint32_t *ids;         /* set for KVW_FORM_IDS, after kvw_scan_keep_ids */
	size_t id_count;
};

/* Called after a successful kvw_scan_finish. */
void kvw_scan_exact(const struct kvw_scan *scan, struct kvw_scan_exact *out);

/* --- changing a body (splice.h) --- */

#define KVW_SCAN_PLACES 16 /* duplicates and all */

/* The value that lies at a place. Values from KVW_PLACE_FIELD on are members that control the
 * engine (engine_fields.h). */
enum kvw_place_kind { KVW_PLACE_MODEL, KVW_PLACE_SALT, KVW_PLACE_FIELD = 32 };

/* Where in the fed body the value of a top-level `model` or `cache_salt` lies, quotes included, or
 * of a form's `model`: byte offsets. Members that control the engine have places, too, if they are
 * watched; such a place may include white space after the value. */
struct kvw_scan_place {
	uint64_t begin, end;
	uint8_t kind;
};

/* The places where a body can be changed. */
struct kvw_scan_places {
	bool form;     /* else JSON */
	bool empty;    /* the body is an object without members */
	bool too_many; /* the body has more such values than places */
	bool fields;   /* some places are of KVW_PLACE_FIELD */
	bool ranked;   /* the body names a data-parallel rank, as SGLang's may */
	uint64_t open; /* offset after the object's opening brace */
	uint32_t count;
	struct kvw_scan_place items[KVW_SCAN_PLACES]; /* ascending */
};

/* Returns the places, after the whole body was fed. Borrowed until reset or destroy. */
const struct kvw_scan_places *kvw_scan_places(const struct kvw_scan *scan);
/* Returns the salt that the body itself has. *there: whether it has one, which may be empty.
 * Borrowed until more is fed or set. */
struct kvw_slice kvw_scan_salt(const struct kvw_scan *scan, bool *there);
/* Sets the salt or model that the changed body will have. Called between the last feed and
 * kvw_scan_finish, which may be called again. Earlier results become invalid. False: out of
 * memory. */
bool kvw_scan_set_salt(struct kvw_scan *scan, struct kvw_slice salt) KVW_MUST_CHECK;
bool kvw_scan_set_model(struct kvw_scan *scan, struct kvw_slice model) KVW_MUST_CHECK;

/* Returns whether the member `kvtier.fragments` in the body's `kv_transfer_params` refuses reuse of
 * fragments. kvway keeps that refusal when it removes the object's other members. */
bool kvw_scan_exact_only(const struct kvw_scan *scan);

/* Returns the bytes of memory that the scan holds now, for the gauge of request memory. */
size_t kvw_scan_memory(const struct kvw_scan *scan);

#endif
