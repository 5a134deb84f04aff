/*
 * fleet_support.h - a fleet of workers on loopback ports, for tests that need one.
 */
#ifndef KVW_TEST_FLEET_SUPPORT_H
#define KVW_TEST_FLEET_SUPPORT_H

#include "fleet/fleet.h"

/* Workers at 127.0.0.1, ports first_port and up. Caller destroys both, the fleet first. */
struct kvw_config *fleet_test_config(size_t workers, uint16_t first_port);
struct kvw_fleet *fleet_test_create(const struct kvw_config *config, size_t loops);

/* names: separated by commas; "" for an empty list. */
void fleet_test_models(struct kvw_fleet *fleet, size_t worker, const char *names);

/* Ids of the candidates for a model (NULL: any), for example "0 2"; "unknown" if no worker lists it. */
const char *fleet_test_ids(const struct kvw_fleet *fleet, const char *model);

#endif
