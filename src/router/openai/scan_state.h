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

#define SCAN_DEPTH           128    /* limit of containers inside one another */
#define SCAN_MAX_MESSAGES    65536u /* in one body */
#define SCAN_MAX_CHAINS      65536u /* limit of prompts in one body */
/* limit of members of all objects that are open at the same time */
#define SCAN_MAX_MEMBERS     65536u
#define SCAN_MIN_PIECES      65536u /* a body may have more pieces than this only if it is long */
#define SCAN_BYTES_PER_PIECE 64u
#define SCAN_KEEP_BYTES      ((size_t)1 << 20) /* memory kept from one body to the next */

/*
 * A block of an Anthropic system prompt that begins with this contains a hash that differs in each
 * request. vLLM drops such blocks, since otherwise no prefix would ever be reused.
 */
#define SCAN_BILLING "x-anthropic-billing-header"

/* Meaning of a value. */
enum node {
	NODE_SKIP, /* ignored: only checked */
	NODE_ROOT,
	NODE_SLOT, /* a string to keep; `argument`: its slot */
	NODE_STREAM,
	NODE_STREAM_OPTIONS,
	NODE_INCLUDE_USAGE,
	NODE_KV_PARAMS, /* kv_transfer_params */
	NODE_FRAGMENTS, /* kvtier.fragments in kv_transfer_params */
	NODE_SAMPLING,  /* sampling_params */
	NODE_SETTING,   /* a member that changes the template's output; argument: enum setting */
	NODE_TOOLS,     /* list of tools */
	NODE_FUNCTIONS, /* the list of tools under its former name */
	NODE_TOOL,
	NODE_SYSTEM,   /* content of a message whose role is `system` */
	NODE_INPUT,    /* /v1/responses: a string, or messages */
	NODE_MESSAGES, /* a list of messages, or of lists of messages */
	NODE_TALK,     /* a list of messages inside such a list */
	NODE_MESSAGE,
	NODE_ROLE,
	NODE_ITEM_TYPE,
	NODE_CALLS,   /* a message's tool_calls or function_call */
	NODE_CONTENT, /* content of a message: a string or a list of parts */
	NODE_PART,
	NODE_PART_TYPE,
	NODE_PART_TEXT,
	NODE_PROMPT, /* a prompt: a string, token ids, or a list of either */
	NODE_PROMPT_ITEM,
	NODE_IDS, /* list of token ids inside a list */
	NODE_ID,
	NODE_UNKNOWN, /* a prompt in a form that is not known */
	NODE_VALUE    /* any value that is only hashed */
};

/* Strings that are kept for the result. Session fields follow. */
enum slot {
	SLOT_MODEL,
	SLOT_SALT,
	SLOT_PREVIOUS,
	SLOT_STREAM, /* forms only */
	SLOT_SESSION,
	SLOT_COUNT = SLOT_SESSION + KVW_SCAN_MAX_SESSION_FIELDS
};

/* Which number a NODE_SKIP member of the top level or of sampling_params has. */
enum skip { SKIP_ALL, SKIP_CHOICES, SKIP_MOST, SKIP_MOST_OLD, SKIP_TEMPERATURE };

/* Top-level members that hold a prompt, for /invocations and /generate: bits of kvw_scan.prompts.
 * On other paths there is only the first one. */
enum prompt_member { PROMPT_OWN, PROMPT_INPUTS, PROMPT_INPUT };

/* Kinds of lists that a prompt can be. */
enum prompt_kind { PROMPT_NONE, PROMPT_STRINGS, PROMPT_IDS, PROMPT_LISTS };

/* Top-level members that change the tokens of a prompt, in the order of the fold. */
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
	uint64_t key;   /* hash of the key that was read last */
	uint64_t value; /* a list: hash of its elements so far */
	uint32_t first; /* an object: index of its first member on the stack */
	uint32_t units; /* a list: sum of its elements' units */
	uint32_t key_len;
	uint8_t node;     /* meaning of this container (enum node) */
	uint8_t member;   /* meaning of the next value (enum node) */
	uint8_t argument; /* more about `member`: enum slot, setting, skip, or an index */
	uint8_t kind;     /* NODE_PROMPT: enum prompt_kind */
	/* For a skipped object: bits of session fields whose paths lead into it (inside) ... */
	uint8_t inside;
	uint8_t within;   /* ... and into the member that was read last (within) */
	/* For the member that was read last: 1 + enum kvw_place_kind if its place is recorded;
	 * otherwise 0. */
	uint8_t field;
	bool holds;       /* sampling_params: it has members that control the engine */
	bool list;
	bool media; /* the member that was read last holds an image, audio or a file */
};

/* A member of an open object: sorted and hashed when the object closes. */
struct member {
	uint64_t key, value;
	uint32_t units;
	uint32_t order; /* order in the text: of equal keys the last one counts */
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

/* A range of pieces, [first, first + count). */
struct range {
	uint32_t first, count;
};

struct message {
	uint64_t role, type;   /* hashes; 0: absent */
	struct value extra;    /* members that have no member here; hash 0: none */
	struct value calls[2]; /* tool_calls, function_call */
	struct range content;
};

enum state {
	STATE_ROOT,         /* before the top-level object */
	STATE_KEY_OR_CLOSE, /* after { */
	STATE_KEY,          /* after a comma in an object: a key follows */
	STATE_COLON,
	STATE_VALUE,          /* after a colon, or a comma in a list: a value follows */
	STATE_VALUE_OR_CLOSE, /* after [ */
	STATE_AFTER,          /* after a value */
	STATE_STRING,
	STATE_NUMBER,
	STATE_LITERAL,
	STATE_END, /* after the top-level object */
	STATE_FAILED
};

/* The separators found in a body, and its segments (cuts.c). */
struct cuts {
	const struct kvw_separator *separator; /* borrowed until the next reset */
	uint8_t matched; /* how many of its bytes match the end of the fed bytes */
	uint32_t count;
	uint32_t at[KVW_CUTS_MOST]; /* numbers of the pieces with which segments begin, ascending */
	uint32_t segment_count;
	struct kvw_segment segments[KVW_SEGMENTS_MOST];
};

/* State of reading a form instead of JSON (multipart.c). */
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
	/* RFC 2046 allows a boundary of 70 bytes; the last byte is for a CR */
	char delimiter[2 + 2 + 70 + 1];
	uint8_t len;                    /* length of `delimiter` */
	uint8_t matched;                /* matched bytes of the delimiter, or of what follows it */
	char last;                      /* the first byte after the delimiter */
	uint8_t field;                  /* of the part that is being read, as in struct frame */
	unsigned slot;                  /* slot for that part's value; SLOT_COUNT: not kept */
};

/* The use of a string's text. */
enum sink { SINK_TEXT, SINK_KEY, SINK_SLOT };

struct kvw_scan {
	const struct kvw_text_ops *ops;
	struct kvw_slice session_names[KVW_SCAN_MAX_SESSION_FIELDS]; /* borrowed */
	uint32_t session_count;
	/* hashes of the types of plain text, and of "message" */
	uint64_t hash_text[4], hash_message;
	uint64_t hash_user, hash_system;
	/* index of the top-level keys: first and next of each hash chain; 0: its end */
	uint8_t root_first[64], root_next[64];

	/* State of the JSON token that is being read. */
	enum state state;
	enum sink sink;
	char escape[6]; /* the bytes that have come of an escape that was cut */
	uint8_t escape_len;
	uint32_t high;         /* a high surrogate that waits for its low half; 0: none */
	const char *literal;   /* rest of a literal that must follow */
	/* if the literal is a number (NaN, ...), its spelling; otherwise NULL */
	const char *number;
	char literal_first;    /* t, f or n */
	uint8_t marked;        /* bytes of a byte order mark at the body's beginning */
	bool matching;         /* the string so far equals the beginning of SCAN_BILLING */
	uint8_t matched;       /* bytes of it */
	struct buffer scratch; /* a key or number that was cut, as far as it has come */

	struct form form;

	/* Results so far. */
	enum kvw_api api;
	bool no_memory;
	bool stream, include_usage;
	bool exact_only; /* the request refuses fragments (kvw_scan_exact_only) */
	bool cutting;    /* cuts is in use */
	struct cuts *cuts; /* owned; NULL: never used */
	uint8_t unknown; /* bits of members that hold a prompt in an unknown form */
	uint32_t choices; /* value of the key `n`; 0: absent, or not a valid number */
	uint32_t greedy; /* 1: temperature is 0 */
	/* values of max_completion_tokens and the like, and of max_tokens; 0: absent, or not a
	 * number. */
	uint32_t most, most_old;
	bool has_messages;
	uint8_t prompts; /* bits of enum prompt_member that the body has; 0: no prompt */
	bool prompt_ids;
	bool keep_ids;
	bool other_parts; /* some content has a part that is not plain text */
	uint8_t prompt_kind; /* enum prompt_kind of the last prompt */
	struct buffer ids;   /* token ids of the prompt (uint32_t), if they are kept */
	struct buffer held;               /* strings of all slots, one after another */
	/* where each slot's string lies in `held`; first UINT32_MAX: absent */
	struct range slots[SLOT_COUNT];
	uint64_t settings[SETTING_COUNT]; /* hashes of the settings; 0: absent, or the default */
	struct range tools, functions;    /* one piece per tool */
	struct message system;
	bool has_system;
	struct message *messages; /* owned */
	uint32_t message_count, message_capacity;
	/* the message that is being read: an entry of `messages`, or `system` */
	struct message *message;
	uint32_t part;           /* index of the mark of the part that is being read */
	bool part_dropped;       /* that part never reaches the prompt */
	uint64_t part_type;
	/* where each chain ends in pieces, counted from prompt_first; owned */
	uint32_t *chain_ends;
	uint32_t chain_count, chain_capacity;
	bool batch; /* several chats: until they are folded, chain_ends counts messages */
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

/* Returns where the number for a key of enum skip is stored; not for SKIP_ALL. */
static inline uint32_t *scan_skipped(struct kvw_scan *scan, unsigned what)
{
	return what == SKIP_CHOICES	? &scan->choices
		: what == SKIP_TEMPERATURE ? &scan->greedy
		: what == SKIP_MOST	? &scan->most
					: &scan->most_old;
}

/* --- scan.c: places where the body can be changed --- */

/* Record where a value begins and ends: that of a slot (the first two slots are kinds of places),
 * or of a KVW_PLACE_FIELD. at: offset in the fed bytes. */
void places_begin(struct kvw_scan *scan, unsigned kind, uint64_t at);
void places_end(struct kvw_scan *scan, unsigned kind, uint64_t at);
/* Returns 1 + enum kvw_place_kind for a watched member that controls the engine; 0 for any
 * other. */
uint8_t places_field(const struct kvw_scan *scan, const char *name, size_t len);

/* --- keys.c: what values mean --- */

/* Builds the index of the top-level keys. */
void keys_index(struct kvw_scan *scan);
/* Called at the body's end: decides the API of a path that serves several, and drops members that
 * this API does not know. */
void keys_settle(struct kvw_scan *scan);
/* Takes a key of the innermost object: sets the meaning of the next value. */
void keys_value_of(struct kvw_scan *scan, const char *key, size_t len);

/* --- schema.c: what is done with values --- */

/* Begins a string: sets scan->sink and prepares the text. */
bool schema_string_begin(struct kvw_scan *scan) KVW_MUST_CHECK;
bool schema_string_end(struct kvw_scan *scan) KVW_MUST_CHECK;
bool schema_number(struct kvw_scan *scan, const char *text, size_t len) KVW_MUST_CHECK;
/* Keeps a run of ids that the text took at once, each with its comma and at most one space; false:
 * out of memory. */
bool schema_keep_ids(struct kvw_scan *scan, const char *p, const char *end) KVW_MUST_CHECK;
/* first: 't', 'f' or 'n'. */
bool schema_literal(struct kvw_scan *scan, char first) KVW_MUST_CHECK;
/* Begins a container: pushes its frame. */
bool schema_open(struct kvw_scan *scan, bool list) KVW_MUST_CHECK;
bool schema_close(struct kvw_scan *scan) KVW_MUST_CHECK;

/* --- prompt.c: messages, parts, prompts --- */

void prompt_begin(struct kvw_scan *scan);
bool prompt_chain_end(struct kvw_scan *scan) KVW_MUST_CHECK;
void prompt_messages_begin(struct kvw_scan *scan);
bool prompt_talk_end(struct kvw_scan *scan) KVW_MUST_CHECK; /* ends one of several chats */
bool prompt_message_open(struct kvw_scan *scan, uint64_t role) KVW_MUST_CHECK;
void prompt_system_open(struct kvw_scan *scan);
void prompt_content_begin(struct kvw_scan *scan);
void prompt_content_end(struct kvw_scan *scan);
void prompt_part_open(struct kvw_scan *scan);
/* begins the part's text; an earlier text of the part is dropped */
void prompt_part_text(struct kvw_scan *scan);
void prompt_part_close(struct kvw_scan *scan, struct value members);

/* --- value.c: one hash for any value --- */

/* Adds the member whose key is in the frame. hash 0: the member counts as absent. */
bool value_member(struct kvw_scan *scan, struct frame *frame, struct value value) KVW_MUST_CHECK;
/* Hashes the members of an object that closes. hash 0: it has no members. */
struct value value_take_members(struct kvw_scan *scan, const struct frame *frame);
struct value value_number(const char *text, size_t len);
/* returns the hash that a string of this text would have */
uint64_t value_of_word(const char *word);
/* Returns whether a member of this name holds an image, audio or a file. */
bool value_is_media(const char *key, size_t len);

/* --- multipart.c --- */

/* Begins a form, since the body begins with a hyphen. */
void form_begin(struct kvw_scan *scan);
void form_feed(struct kvw_scan *scan, const char *p, const char *end);

/* --- cuts.c --- */

/* Returns how many of these bytes come before the next cut; more than len: there is none. */
size_t cuts_next(struct kvw_scan *scan, const char *data, size_t len);
/* Called after a separator: the next piece of the text begins a segment. */
void cuts_make(struct kvw_scan *scan);
/* Sets the segments of a request whose chain is computed. seed: differs between models, salts and
 * so on. */
void cuts_segments(struct kvw_scan *scan, uint64_t seed, struct kvw_route_request *out);

/* --- fold.c --- */

enum kvw_err fold_chain(struct kvw_scan *scan, struct kvw_route_request *out) KVW_MUST_CHECK;

/* --- scan.c: its memory --- */

bool buffer_append(
	struct kvw_scan *scan, struct buffer *buffer, const char *data, size_t len) KVW_MUST_CHECK;

#endif
