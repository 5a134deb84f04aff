/*
 * group_choice.h - chooses a request's group of a model by weighted rendezvous hashing.
 *
 * Each group draws a number from the request's key and its own name, and the smallest -ln(u) /
 * weight wins. So a group gets its part of all keys by weight; every replica with the same names
 * and weights chooses alike; and a group whose weight grows takes keys from the others in
 * proportion to their weights, while no key moves between two unchanged groups. The order after the
 * winner gives the next groups for a request whose group has no worker.
 *
 * Pure functions.
 */
#ifndef KVW_GROUP_CHOICE_H
#define KVW_GROUP_CHOICE_H

#include <stddef.h>
#include <stdint.h>

#define KVW_GROUPS_MOST 64 /* most groups of one model */

struct kvw_group_share {
	uint64_t hash; /* hash of the group's name */
	double weight; /* >= 0 */
};

/* Indexes of the groups with a weight above 0, the chosen one first; returns their number. count is
 * at most KVW_GROUPS_MOST, the room of `order`. */
size_t kvw_group_order(
	const struct kvw_group_share *shares, size_t count, uint64_t key, uint8_t *order);

#endif
