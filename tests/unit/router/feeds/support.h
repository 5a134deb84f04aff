/*
 * support.h - a fleet with its exact view and spaces, and a feed over them, for tests of modules.
 */
#ifndef KVT_FEED_SUPPORT_H
#define KVT_FEED_SUPPORT_H

#include "routing/exact.h"
#include "feeds/feed.h"
#include "routing/kvindex.h"

struct rig {
	struct kvw_config *config;
	struct kvw_fleet *fleet;
	struct kvw_exact *exact;
	struct kvw_kvspaces *spaces;
	struct kvw_feed *feed; /* NULL until rig_start */
};

/* Workers at 127.0.0.1, ports first_port and up; `events`: lines below kvaware.events, each indented
 * by four blanks. */
void rig_init(struct rig *rig, size_t workers, uint16_t first_port, const char *events);
void rig_start(struct rig *rig, const struct kvw_feed_module *module); /* NULL: none */
void rig_finish(struct rig *rig);

/* A port of 127.0.0.1 without a listener. */
uint16_t free_port(void);

/* Until the condition holds; false after ten seconds. */
typedef bool rig_condition(struct rig *rig, void *ctx);
bool rig_wait(struct rig *rig, rig_condition *condition, void *ctx);

uint64_t rig_count(struct rig *rig, enum kvw_feed_counter counter);
enum kvw_coverage rig_coverage(struct rig *rig, uint32_t worker);

/* Waits for it, and fails with what the status says if it does not come. */
void rig_await_coverage(struct rig *rig, uint32_t worker, enum kvw_coverage coverage);

/* Leading blocks of a prompt that a worker holds, by the engine's space of this block size. */
uint32_t rig_hit(struct rig *rig, uint32_t worker, uint32_t block_tokens, const uint32_t *tokens,
	size_t count);
void rig_await_hit(struct rig *rig, uint32_t worker, uint32_t block_tokens, const uint32_t *tokens,
	size_t count, uint32_t blocks);

#endif
