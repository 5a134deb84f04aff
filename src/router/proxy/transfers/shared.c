/*
 * shared.c - a storage that both workers reach: LMCache in multi-process mode, MooncakeStore,
 * kvtier's shared tier. The prefiller stores the prompt's KV there by its content, and the decoder
 * finds it as it would find any other; if it is gone by then, the decoder computes the prompt.
 */
#include "proxy/transfer.h"

const struct kvw_transfer_kind kvw_transfer_shared = {
	.leg = KVW_LEG_FIRST,
};
