/*
 * fixture.h - a small fleet for the tests of src/router/admin: workers on closed loopback ports, a
 * configuration made by hand.
 */
#ifndef KVW_TEST_ADMIN_FIXTURE_H
#define KVW_TEST_ADMIN_FIXTURE_H

#include "fleet/fleet.h"
#include "base/record.h"

#define FIXTURE_WORKERS 3

struct fixture {
	struct kvw_config config;
	struct kvw_worker_config workers[FIXTURE_WORKERS];
	char urls[FIXTURE_WORKERS][64];
	struct kvw_fleet *fleet;
};

/* first_port: of worker 0; the others follow. Fails the test on any error. */
void fixture_init(struct fixture *fixture, uint16_t first_port);
void fixture_finish(struct fixture *fixture);

/* Sets the models of a worker; names is a comma separated list. */
void fixture_models(struct fixture *fixture, size_t worker, const char *names);

/* A chat request that worker 0 answered well in 100 ms. */
struct kvw_request_record fixture_record(const struct fixture *fixture);

#endif
