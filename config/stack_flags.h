/*
 * stack_flags.h - reads the flags of vLLM production-stack's router as keys of kvway.
 *
 * So a command line for that router also starts kvway, with settings that mean the same. If a flag
 * asks for something that kvway does not do, that is a mistake, whose text names the flag and what
 * to use in its place. A flag that only tunes something that kvway does in another way has no
 * effect, and the caller reports that.
 */
#ifndef KVW_CONFIG_STACK_FLAGS_H
#define KVW_CONFIG_STACK_FLAGS_H

#include "config/build.h"

enum kvw_stack_use {
	KVW_STACK_TEXT,         /* the flag's value is the value of the row's key */
	KVW_STACK_SECONDS,      /* the same, for a number of seconds */
	KVW_STACK_LIST,         /* the row's keys are lists of names, with the value as only entry */
	KVW_STACK_LMCACHE_PORT, /* a port on all addresses */
	KVW_STACK_HOST,         /* together make `listen` */
	KVW_STACK_PORT,
	KVW_STACK_BACKENDS, /* together make `workers` */
	KVW_STACK_MODELS,
	KVW_STACK_LABELS,
	KVW_STACK_PREFILL_LABELS,
	KVW_STACK_DECODE_LABELS,
	KVW_STACK_LOGIC,   /* a strategy, or a way to split prefill and decode */
	KVW_STACK_ONLY,    /* it takes one value, and has no effect */
	KVW_STACK_NOTE,    /* no effect */
	KVW_STACK_REFUSED, /* a mistake */
	KVW_STACK_SHARED,  /* kvway has this flag, too, so kvw_stack_apply ignores it */
};

/* A row of stack_flags.def. */
struct kvw_stack_flag {
	const char *flag;     /* "--host" */
	const char *argument; /* NULL: takes no value */
	enum kvw_stack_use use;
	const char *keys; /* for ONLY: the value */
	const char *text;
};

/* An enum, so that the number of rows is a constant in other files. */
enum {
	KVW_STACK_FLAG_COUNT = 0
#define KVW_STACK_FLAG(flag, argument, use, keys, text) +1
#include "config/stack_flags.def"
};

extern const struct kvw_stack_flag kvw_stack_flags[KVW_STACK_FLAG_COUNT];

/* Sets the keys for the flags in flags->stack, and for the defaults of that router. That includes
 * the workers, unless flags->workers has them. KVW_ENOMEM or KVW_OK; mistakes are in the report. */
enum kvw_err kvw_stack_apply(
	struct kvw_build *build, const struct kvw_config_flags *flags) KVW_MUST_CHECK;

/* Returns kvway's word for a level of that router's log; other words are returned unchanged. */
const char *kvw_stack_log_level(const char *level);

#endif
