/*
 * daemon_settings.h - the configuration of kvtierd: its own keys, limits of buckets, and the keys
 * of its cache.
 *
 * Keys stand in daemon_settings.def; the cache's keys follow as `cache.*`. The daemon sets some of
 * those itself, since the segment is the cache's memory; they are refused with a text that names
 * the key to use instead.
 */
#ifndef KVT_DAEMON_SETTINGS_H
#define KVT_DAEMON_SETTINGS_H

#include <stdio.h>

#include "daemon/objects.h"

struct kvt_config_texts;

/* Durations in ns, sizes in bytes. */
struct kvt_daemon_config {
	const char *listen, *admin; /* HOST:PORT; admin "": none */
	uint32_t loops;             /* 0: automatic */
	uint32_t client_erase;
	uint32_t log_level; /* enum kvt_log_level */
	const char *segment_name;
	uint64_t segment_bytes; /* 0: automatic */
	uint32_t segment_access; /* the file's mode */
	uint64_t lease_ttl_ns, lease_ttl_max_ns, lease_grace_ns;
	uint64_t lease_wait_ns, lease_wait_max_ns;
	uint32_t connections, leases, puts;
	uint64_t object_bytes, memory_object_bytes;
	uint64_t idle_ns, head_ns, body_ns, body_rate, write_ns, drain_ns;

	struct kvt_bucket_limit *buckets; /* [bucket_count], owned */
	size_t bucket_count;
	struct kvt_config cache;
	struct kvt_config_texts *texts; /* owned memory of the texts above and in `cache` */
};

void kvt_daemon_config_init(struct kvt_daemon_config *config);

/* Reads YAML like kvt_config_read. KVT_EINVAL: there were mistakes, listed in *report
 * (kvt_text_free); valid values apply. KVT_ENOMEM: *config is unchanged. */
enum kvt_status kvt_daemon_config_read(struct kvt_daemon_config *config, const char *name,
	const char *yaml, size_t len, char **report) KVT_MUST_CHECK;
void kvt_daemon_config_finish(struct kvt_daemon_config *config);

/* Print REFERENCE.md; a YAML file with every key and its default; "KEY: VALUE" for every key. */
void kvt_daemon_reference(FILE *out);
void kvt_daemon_example(FILE *out);
void kvt_daemon_config_print(const struct kvt_daemon_config *config, FILE *out);

#endif
