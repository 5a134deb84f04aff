/*
 * scan_state.h - internals of a scan, shared by its files.
 *
 * 	feed --> tokens.c    JSON tokens, cut anywhere; knows the grammar, not what anything means
 * 	           |
 * 	         keys.c      what a value means: by the container it is in and the key before it
 * 	         schema.c    what becomes of it
 * 	         |      |
 * 	  prompt.c   value.c prompt text: pieces in the order of the body; other values: a hash
 * 	  text.c        |
 * 	         fold.c      at the end: pieces, in canonical order, into the chain
 *
 * Functions of type bool return false for a body that violates its path's format, or beyond a
 * limit; the scan then ends.
 */
#ifndef KVW_SCAN_STATE_H
#define KVW_SCAN_STATE_H

#include "openai/cuts.h"
#include "openai/scan.h"
#include "openai/text.h"

#define SCAN_DEPTH           128    /* containers inside one another */
#define SCAN_MAX_MESSAGES    65536u /* in one body */
#define SCAN_MAX_CHAINS      65536u /* prompts in one body */
#define SCAN_MAX_MEMBERS     65536u /* of all objects open at one time */
#define SCAN_MIN_PIECES      65536u /* more only for a long body */
#define SCAN_BYTES_PER_PIECE 64u
#define SCAN_KEEP_BYTES      ((size_t)1 << 20) /* memory kept from one body to the next */

/*
 * A block of an Anthropic system prompt that begins so has a hash that differs in each request.
 * vLLM drops such blocks, since otherwise no prefix would ever be reused.
 */
#define SCAN_BILLING "x-anthropic-billing-header"

/* Meaning of a value. */
enum node {
	NODE_SKIP, /* ignored: only checked */
	NODE_ROOT,
	NODE_SLOT, /* a string to keep, in the slot of the frame's argument */
	NODE_STREAM,
	NODE_STREAM_OPTIONS,
	NODE_INCLUDE_USAGE,
	NODE_KV_PARAMS, /* kv_transfer_params */
	NODE_FRAGMENTS, /* kvtier.fragments in kv_transfer_params */
	NODE_SAMPLING,  /* sampling_params */
	NODE_SETTING,   /* changes the template's output; argument: enum setting */
	NODE_TOOLS,     /* list of tools */
	NODE_FUNCTIONS, /* the same under its former name */
	NODE_TOOL,
	NODE_SYSTEM,   /* content of a message whose role is system */
	NODE_INPUT,    /* /v1/responses: a string, or messages */
	NODE_MESSAGES, /* list of messages, or of lists of them */
	NODE_TALK,     /* one of these lists */
	NODE_MESSAGE,
	NODE_ROLE,
	NODE_ITEM_TYPE,
	NODE_CALLS,   /* a message's tool_calls and function_call */
	NODE_CONTENT, /* string or list of parts */
	NODE_PART,
	NODE_PART_TYPE,
	NODE_PART_TEXT,
	NODE_PROMPT, /* string, ids, or list of either */
	NODE_PROMPT_ITEM,
	NODE_IDS, /* list of token ids inside a list */
	NODE_ID,
	NODE_UNKNOWN, /* a prompt in an unknown form */
	NODE_VALUE    /* any value: one hash */
};

/* Strings kept for the answer. Session fields follow. */
enum slot {
	SLOT_MODEL,
	SLOT_SALT,
	SLOT_PREVIOUS,
	SLOT_STREAM, /* forms only */
	SLOT_SESSION,
	SLOT_COUNT = SLOT_SESSION + KVW_SCAN_MAX_SESSION_FIELDS
};

/* Number to read from a NODE_SKIP member of the top level or of sampling_params. */
enum skip { SKIP_ALL, SKIP_CHOICES, SKIP_MOST, SKIP_MOST_OLD, SKIP_TEMPERATURE };

/* Top-level members that hold a prompt, of /invocations and of /generate: bits of kvw_scan.prompts.
 * Elsewhere there is one, the first. */
enum prompt_member { PROMPT_OWN, PROMPT_INPUTS, PROMPT_INPUT };

/* Kinds of list in NODE_PROMPT. */
enum prompt_kind { PROMPT_NONE, PROMPT_STRINGS, PROMPT_IDS, PROMPT_LISTS };

/* Top-level members that change the tokens of a prompt. Order: that of the fold. */
enum setting {
	SETTING_CHAT_TEMPLATE,
	SETTING_CHAT_TEMPLATE_KWARGS,
	SETTING_DOCUMENTS,
	SETTING_ADD_GENERATION_PROMPT,
	SETTING_CONTINUE_FINAL_MESSAGE,
	SETTING_ADD_SPECIAL_TOKENS,
	SETTING_TRUNCATE_PROMPT_TOKENS,
	SETTING_MM_PROCESSOR_KWARGS,
	SETTING_REASONING_EFFORT,
	SETTING_REASONING,
	SETTING_THINKING,
	SETTING_PROMPT_TEMPLATE,
	SETTING_SUFFIX,
	SETTING_COUNT
};

/* One open container. */
struct frame {
	uint64_t key;   /* hash of the member's key that was read last */
	uint64_t value; /* of a list: its elements so far */
	uint32_t first; /* of an object: index of its first member */
	uint32_t units; /* of a list: sum of its elements */
	uint32_t key_len;
	uint8_t node;     /* enum node: meaning of this container */
	uint8_t member;   /* enum node: meaning of the next value */
	uint8_t argument; /* of `member`: enum slot, setting, skip, or an index */
	uint8_t kind;     /* NODE_PROMPT: enum prompt_kind */
	/* For a skipped object: bits of session fields whose paths lead into it ... */
	uint8_t inside;
	uint8_t within;   /* ... and into the member read last */
	/* For the member read last: 1 + enum kvw_place_kind, if its place is recorded; else 0. */
	uint8_t field;
	bool holds;       /* sampling_params: has members that control the engine */
	bool list;
	bool media; /* the member read last holds an image, audio or a file */
};

/* A member of an open object: sorted and hashed when the object closes. */
struct member {
	uint64_t key, value;
	uint32_t units;
	uint32_t order; /* among equal keys the last counts */
};

struct buffer {
	char *data; /* owned */
	size_t len, capacity;
};

/* A value's hash, and its units of prompt. */
struct value {
	uint64_t hash;
	uint32_t units;
};

/* Pieces [first, first + count). */
struct range {
	uint32_t first, count;
};

struct message {
	uint64_t role, type;   /* hashes; 0: absent */
	struct value extra;    /* members other than these; hash 0: none */
	struct value calls[2]; /* tool_calls, function_call */
	struct range content;
};

enum state {
	STATE_ROOT,         /* before the top-level object */
	STATE_KEY_OR_CLOSE, /* after { */
	STATE_KEY,          /* after a comma in an object */
	STATE_COLON,
	STATE_VALUE,          /* after a colon, or a comma in a list */
	STATE_VALUE_OR_CLOSE, /* after [ */
	STATE_AFTER,          /* after a value */
	STATE_STRING,
	STATE_NUMBER,
	STATE_LITERAL,
	STATE_END, /* after the top-level object */
	STATE_FAILED
};

/* Cuts of a body, and the segments: cuts.c. */
struct cuts {
	const struct kvw_separator *separator; /* borrowed until the next reset */
	uint8_t matched;                       /* bytes of it matched at the end of the fed bytes */
	uint32_t count;
	uint32_t at[KVW_CUTS_MOST]; /* ascending: a segment begins with this piece */
	uint32_t segment_count;
	struct kvw_segment segments[KVW_SEGMENTS_MOST];
};

/* A form instead of JSON: multipart.c. */
struct form {
	enum {
		FORM_NONE,
		FORM_FIRST_LINE,
		FORM_HEAD,
		FORM_VALUE,
		FORM_AFTER,
		FORM_END,
		FORM_FAILED
	} state;
	char delimiter[2 + 2 + 70 + 1]; /* RFC 2046: the boundary has 70 bytes at most; + CR */
	uint8_t len;                    /* of delimiter */
	uint8_t matched;                /* matched bytes of delimiter, or of the bytes after it */
	char last;                      /* the first byte after the delimiter */
	uint8_t field;                  /* of the open part, as in struct frame */
	unsigned slot;                  /* of the open part; SLOT_COUNT: not wanted */
};

/* Destination of a string's text. */
enum sink { SINK_TEXT, SINK_KEY, SINK_SLOT };

struct kvw_scan {
	const struct kvw_text_ops *ops;
	struct kvw_slice session_names[KVW_SCAN_MAX_SESSION_FIELDS]; /* borrowed */
	uint32_t session_count;
	uint64_t hash_text[4], hash_message; /* hashes of the types of plain text, of "message" */
	uint64_t hash_user, hash_system;
	uint8_t root_first[64], root_next[64]; /* index of the top-level keys; 0: end of a list */

	/* The token being read. */
	enum state state;
	enum sink sink;
	char escape[6]; /* the bytes so far of an escape that was cut */
	uint8_t escape_len;
	uint32_t high;         /* a high surrogate that waits for its low half; 0: none */
	const char *literal;   /* expected rest of a literal */
	const char *number;    /* its spelling if a number: NaN, ...; NULL: */
	char literal_first;    /* t, f or n */
	uint8_t marked;        /* bytes of a byte order mark in front */
	bool matching;         /* the string matches SCAN_BILLING so far */
	uint8_t matched;       /* bytes of it */
	struct buffer scratch; /* a key or number that was cut */

	struct form form;

	/* Results so far. */
	enum kvw_api api;
	bool no_memory;
	bool stream, include_usage;
	bool exact_only; /* the request refuses fragments */
	bool cutting;    /* cuts is in use */
	struct cuts *cuts; /* owned; NULL: never used */
	uint8_t unknown; /* bits: prompts in an unknown form */
	uint32_t choices; /* the key n; 0: absent, or no valid number */
	uint32_t greedy; /* 1: temperature is 0 */
	/* max_completion_tokens and the like, max_tokens; 0: absent, or no number. */
	uint32_t most, most_old;
	bool has_messages;
	uint8_t prompts; /* bits: enum prompt_member; 0: no prompt */
	bool prompt_ids;
	bool keep_ids;
	bool other_parts; /* some part of some content is not plain text */
	uint8_t prompt_kind; /* enum prompt_kind of the last prompt */
	struct buffer ids;   /* of a prompt of token ids, if they are kept; uint32_t */
	struct buffer held;               /* strings of the slots, one after another */
	struct range slots[SLOT_COUNT];   /* in held; first UINT32_MAX: absent */
	uint64_t settings[SETTING_COUNT]; /* hashes; 0: absent or as by default */
	struct range tools, functions;    /* one piece per tool */
	struct message system;
	bool has_system;
	struct message *messages; /* owned */
	uint32_t message_count, message_capacity;
	struct message *message; /* the open one: in messages, or system */
	uint32_t part;           /* of the open part: its mark in pieces */
	bool part_dropped;       /* the open part never reaches the prompt */
	uint64_t part_type;
	uint32_t *chain_ends; /* owned; in pieces, counted from prompt_first */
	uint32_t chain_count, chain_capacity;
	bool batch; /* several chats: chain_ends counts messages until they are folded */
	uint32_t prompt_first;
	struct member *members; /* owned; a stack */
	uint32_t member_count, member_capacity;
	struct kvw_chunk *chunks; /* owned; the result */
	uint32_t chunk_capacity;
	uint32_t depth;
	uint64_t fed_bytes;
	struct kvw_scan_places places;
	uint32_t watched; /* bits of watched members that control the engine */
	struct kvw_text text;
	struct frame frames[SCAN_DEPTH];
};

static inline struct frame *scan_top(struct kvw_scan *scan)
{
	return &scan->frames[scan->depth - 1];
}

/* Destination of the number for a key of enum skip, except SKIP_ALL. */
static inline uint32_t *scan_skipped(struct kvw_scan *scan, unsigned what)
{
	return what == SKIP_CHOICES	? &scan->choices
		: what == SKIP_TEMPERATURE ? &scan->greedy
		: what == SKIP_MOST	? &scan->most
					: &scan->most_old;
}

/* --- scan.c: where the body can be changed --- */

/* The value of a slot (the first two are kinds of places) or of a place of KVW_PLACE_FIELD begins,
 * ends; `at` in bytes of what was fed. */
void places_begin(struct kvw_scan *scan, unsigned kind, uint64_t at);
void places_end(struct kvw_scan *scan, unsigned kind, uint64_t at);
/* For a watched member that controls the engine: 1 + enum kvw_place_kind; else 0. */
uint8_t places_field(const struct kvw_scan *scan, const char *name, size_t len);

/* --- keys.c: meanings of values --- */

/* Builds the index of the top-level keys. */
void keys_index(struct kvw_scan *scan);
/* At the end: decides the API of a path that serves several, and drops members that this API does
 * not know. */
void keys_settle(struct kvw_scan *scan);
/* Takes a key of the innermost object: sets the meaning of the next value. */
void keys_value_of(struct kvw_scan *scan, const char *key, size_t len);

/* --- schema.c: handling of values --- */

/* A string begins: sets scan->sink and prepares text. */
bool schema_string_begin(struct kvw_scan *scan) KVW_MUST_CHECK;
bool schema_string_end(struct kvw_scan *scan) KVW_MUST_CHECK;
bool schema_number(struct kvw_scan *scan, const char *text, size_t len) KVW_MUST_CHECK;
/* Keeps ids that the text took at once, each with its comma and at most one space; false: no
 * memory. */
bool schema_keep_ids(struct kvw_scan *scan, const char *p, const char *end) KVW_MUST_CHECK;
/* first: 't', 'f' or 'n'. */
bool schema_literal(struct kvw_scan *scan, char first) KVW_MUST_CHECK;
/* A container begins. Pushes its frame. */
bool schema_open(struct kvw_scan *scan, bool list) KVW_MUST_CHECK;
bool schema_close(struct kvw_scan *scan) KVW_MUST_CHECK;

/* --- prompt.c: messages, parts, prompts --- */

void prompt_begin(struct kvw_scan *scan);
bool prompt_chain_end(struct kvw_scan *scan) KVW_MUST_CHECK;
void prompt_messages_begin(struct kvw_scan *scan);
bool prompt_talk_end(struct kvw_scan *scan) KVW_MUST_CHECK; /* one of several chats */
bool prompt_message_open(struct kvw_scan *scan, uint64_t role) KVW_MUST_CHECK;
void prompt_system_open(struct kvw_scan *scan);
void prompt_content_begin(struct kvw_scan *scan);
void prompt_content_end(struct kvw_scan *scan);
void prompt_part_open(struct kvw_scan *scan);
void prompt_part_text(struct kvw_scan *scan); /* its text begins; drops an earlier one */
void prompt_part_close(struct kvw_scan *scan, struct value members);

/* --- value.c: one hash for any value --- */

/* Adds the member whose key is in the frame. hash 0: counts as absent. */
bool value_member(struct kvw_scan *scan, struct frame *frame, struct value value) KVW_MUST_CHECK;
/* Hashes the members of an object that closes. hash 0: it has none. */
struct value value_take_members(struct kvw_scan *scan, const struct frame *frame);
struct value value_number(const char *text, size_t len);
uint64_t value_of_word(const char *word); /* as the string would hash */
/* Whether a member of this name has an image, audio or a file. */
bool value_is_media(const char *key, size_t len);

/* --- multipart.c --- */

/* Begins a form: the body begins with a hyphen. */
void form_begin(struct kvw_scan *scan);
void form_feed(struct kvw_scan *scan, const char *p, const char *end);

/* --- cuts.c --- */

/* Number of these bytes before the next cut; more than len: no cut. */
size_t cuts_next(struct kvw_scan *scan, const char *data, size_t len);
/* After a separator: the text's next piece begins a segment. */
void cuts_make(struct kvw_scan *scan);
/* Sets the segments of a request whose chain is known. seed: distinguishes models, salts and so
 * on. */
void cuts_segments(struct kvw_scan *scan, uint64_t seed, struct kvw_route_request *out);

/* --- fold.c --- */

enum kvw_err fold_chain(struct kvw_scan *scan, struct kvw_route_request *out) KVW_MUST_CHECK;

/* --- scan.c: its memory --- */

bool buffer_append(
	struct kvw_scan *scan, struct buffer *buffer, const char *data, size_t len) KVW_MUST_CHECK;

#endif
