/*
 * options.h - parses the command line of `kvway render -f`.
 */
#ifndef KVW_RENDER_OPTIONS_H
#define KVW_RENDER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Groups of objects to write, as bits. CONFIG: kvway's own configuration, as a file. */
enum kvw_render_part {
	KVW_PART_WORKERS = 1,
	KVW_PART_ROUTER = 2,
	KVW_PART_CACHE = 4,
	KVW_PART_MONITORING = 8,
	KVW_PART_OBJECTS = 15,
	KVW_PART_CONFIG = 16
};

/* The texts are borrowed from argv, or constant. */
struct kvw_render_options {
	const char *file;         /* "-": standard input */
	const char *output;       /* "-": standard output */
	const char *namespace;    /* NULL: the manifest's */
	const char *image;        /* image of the workers; NULL: the one in the manifest */
	const char *kvway_image;
	const char *kvtierd_image;
	const char *redis_image;
	const char *model_source; /* NULL: the manifest's */
	const char *cluster_domain;
	/* folder on the nodes for kvtierd; "none"; NULL: chosen by the nodes' instance types */
	const char *nvme_path;
	bool kvtier;              /* true: the workers use kvtier; false: LMCache */
	const char *lmcache;      /* version of the workers' LMCache; NULL: by the image's name */
	bool strict;              /* fields without effect are mistakes, too */
	int kvway_replicas;       /* 0: chosen by the manifest */
	int gpus; /* GPUs for a worker of a JumpStartModel; 0: chosen by the instance type */
	uint64_t l1_size;         /* bytes, of each rank */
	uint64_t l2_size;         /* bytes of Redis, or of the memory of each node's kvtierd */
	uint64_t nvme_size;       /* bytes on disk of each node's kvtierd */
	enum kvw_render_part part;
};

enum kvw_options_result {
	KVW_OPTIONS_GO,
	KVW_OPTIONS_DONE,  /* help was printed */
	KVW_OPTIONS_WRONG, /* the command line is wrong, which was reported */
};

/* argv[0] is the word `render`. To be called once, before any thread is started. */
enum kvw_options_result kvw_render_options_parse(
	int argc, char **argv, FILE *out, FILE *err, struct kvw_render_options *options);

#endif
