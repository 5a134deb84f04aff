/*
 * sim_lmcache_link.h - one LMCache worker's sockets to its controller.
 *
 *	PUSH    events                                   -> controller's pull address
 *	DEALER  register, full sync, one at a time      <-> controller's reply address (0.4, 0.5)
 *	DEALER  heartbeats                              <-> where the answer to register says (0.4, 0.5)
 *	REP     commands from the controller
 *
 * Version 0.3 has no DEALER: it registers, and sends its heartbeats, on PUSH and gets no answers.
 *
 * Habits of 0.5.6 that a controller has to live with, and which are kept here: a registration is sent
 * once, and unanswered for `timeout_s` it ends all that this worker ever says; without an address for
 * heartbeats in the answer there are none; during a full sync nothing is stored.
 *
 * Belongs to one event loop. Nothing in here waits, but destroy lingers for a last message.
 */
#ifndef KVB_SIM_LMCACHE_LINK_H
#define KVB_SIM_LMCACHE_LINK_H

#include "sim_lmcache_wire.h"
#include "sim_options.h"
#include "sim_tier.h"

struct event_base;
struct kvb_lmc_link;

/* Carries a command out and writes the answer. */
typedef void kvb_lmc_command_fn(
	void *user, const struct kvb_lmc_message *command, struct kvb_buf *answer);

struct kvb_lmc_link_config {
	struct event_base *base;
	void *zmq; /* context */
	const struct kvb_lmcache_options *options;
	const char *instance;        /* copied */
	const char *ip;              /* copied; where commands can be sent */
	uint16_t port;               /* of the command socket; 0: a free one */
	const struct kvb_tier *tier; /* what a full sync tells */
	kvb_lmc_command_fn *command;
	void *user;
};

/* All of it is borrowed but what says otherwise. NULL with a message on standard error. */
struct kvb_lmc_link *kvb_lmc_link_create(const struct kvb_lmc_link_config *config);
void kvb_lmc_link_destroy(struct kvb_lmc_link *link); /* says good-bye; NULL is allowed */

/* An operation of the tier; it leaves with the next flush. */
void kvb_lmc_link_operation(struct kvb_lmc_link *link, bool admit, uint64_t key);
void kvb_lmc_link_flush(struct kvb_lmc_link *link);

/* As a new process would, on the same sockets: registers, counts from 0. */
void kvb_lmc_link_restart(struct kvb_lmc_link *link);

struct kvb_lmc_link_stats {
	bool registered; /* the controller has answered, or the version expects no answer */
	bool frozen;     /* a full sync is under way: nothing may be stored */
	uint64_t operations, syncs, heartbeats, commands;
	uint16_t port; /* of the command socket */
};

void kvb_lmc_link_stats(const struct kvb_lmc_link *link, struct kvb_lmc_link_stats *out);

#endif
