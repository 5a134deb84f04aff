/*
 * job.h - one measurement that kvb-load is asked for, and the program's parts that do it.
 *
 * A job is a line of words: a kind and key=value pairs, from the command line or standard input:
 *
 *     requests port=8080 body=2048 connections=64 seconds=2 pid=1234
 *
 * Its result is one JSON object on one line of standard output. The keys are in job.c.
 */
#ifndef KVB_JOB_H
#define KVB_JOB_H

#include <stdint.h>
#include <stdio.h>

#include "bench/load/backend.h"
#include "kvway/err.h"
#include "bench/load/reactor.h"

enum kvb_job_kind {
	KVB_JOB_REQUESTS, /* closed loop or paced POSTs: CPU per request, requests per second */
	KVB_JOB_STREAM,   /* many event streams: CPU per chunk, added delay */
	KVB_JOB_IDLE,     /* idle kept-alive clients: memory per client */
	KVB_JOB_HANDSHAKES, /* TLS: CPU per handshake, handshakes per second */
};

struct kvb_job {
	enum kvb_job_kind kind;
	char host[64];       /* the proxy's address, numeric */
	int64_t port;        /* the proxy's port */
	int64_t pid;         /* the proxy's process, whose CPU and memory are read; 0: none */
	int64_t body;        /* bytes of a request body */
	int64_t connections; /* requests: at once; idle: clients counted */
	int64_t streams;
	int64_t interval_us; /* between two events of one stream */
	int64_t warmup_ms;   /* length of the load that is not counted */
	int64_t duration_ms; /* length of the load that is counted */
	int64_t rate;        /* requests per second; 0: as fast as answers come */
	int64_t tls;         /* requests: 1: by TLS */
	int64_t unique;      /* requests: 1: no two share a prefix */
	int64_t resume;      /* handshakes: 1: all but the first resume one session */
};

/* The environment of jobs: one reactor, and the backends that run in it (NULL: none). */
struct kvb_load {
	struct kvb_reactor reactor;
	struct kvb_backend *backend;
};

/* Parses one line (changed by it). KVW_EINVAL: a message was written to error, one line. */
enum kvw_err kvb_job_parse(char *line, struct kvb_job *out, FILE *error) KVW_MUST_CHECK;
/* The keys with their defaults, for --help. */
void kvb_job_print_keys(FILE *out);

/* Each runs until its result is written to out; KVW_EIO if nothing could be measured. */
enum kvw_err kvb_job_requests(struct kvb_load *load, const struct kvb_job *job, FILE *out);
enum kvw_err kvb_job_stream(struct kvb_load *load, const struct kvb_job *job, FILE *out);
enum kvw_err kvb_job_handshakes(struct kvb_load *load, const struct kvb_job *job, FILE *out);
enum kvw_err kvb_job_idle(struct kvb_load *load, const struct kvb_job *job, FILE *out);

#endif
