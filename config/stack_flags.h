/*
 * stack_flags.h - the flags of vLLM production-stack's router, taken as keys of kvway.
 *
 * A command line for that router starts kvway with what it amounts to here. Where a flag asks for
 * something that kvway does not do, that is a mistake which names the flag and what to use instead; a
 * flag that only tunes what kvway does in another way has no effect, and the caller says so.
 */
#ifndef KVW_CONFIG_STACK_FLAGS_H
#define KVW_CONFIG_STACK_FLAGS_H

#include "config/build.h"

enum kvw_stack_use {
	KVW_STACK_TEXT,         /* the value of its key */
	KVW_STACK_SECONDS,      /* a number of seconds */
	KVW_STACK_LIST,         /* the only entry of its keys, which are lists of names */
	KVW_STACK_LMCACHE_PORT, /* a port on all addresses */
	KVW_STACK_HOST,         /* together make `listen` */
	KVW_STACK_PORT,
	KVW_STACK_BACKENDS, /* together make `workers` */
	KVW_STACK_MODELS,
	KVW_STACK_ONLY,    /* one value is taken, and has no effect */
	KVW_STACK_NOTE,    /* no effect */
	KVW_STACK_REFUSED, /* a mistake */
	KVW_STACK_SHARED,  /* a flag of kvway too: not for kvw_stack_apply */
};

/* One row of stack_flags.def. */
struct kvw_stack_flag {
	const char *flag;     /* "--host" */
	const char *argument; /* NULL: takes no value */
	enum kvw_stack_use use;
	const char *keys; /* of ONLY: the value */
	const char *text;
};

/* The number of rows is known when others are compiled. */
enum {
	KVW_STACK_FLAG_COUNT = 0
#define KVW_STACK_FLAG(flag, argument, use, keys, text) +1
#include "config/stack_flags.def"
};

extern const struct kvw_stack_flag kvw_stack_flags[KVW_STACK_FLAG_COUNT];

/* Sets what flags->stack says, and what it leaves to the defaults of that router. Workers too, unless
 * flags->workers has them. KVW_ENOMEM or KVW_OK; mistakes are in the report. */
enum kvw_err kvw_stack_apply(
	struct kvw_build *build, const struct kvw_config_flags *flags) KVW_MUST_CHECK;

/* The word that kvway has for a level of that router's log; others as they are. */
const char *kvw_stack_log_level(const char *level);

#endif
