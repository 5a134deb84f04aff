/*
 * sim_shared.h - KV blocks in a storage that several workers share: files of a folder, named by the
 * content of the prompt up to the block. As LMCache's or MooncakeStore's: no parameters, and what is
 * not there is computed.
 */
#ifndef KVB_SIM_SHARED_H
#define KVB_SIM_SHARED_H

struct kvb_exchange;

/* Finds the prompt's blocks in the storage, which need not be computed. */
void kvb_shared_find(struct kvb_exchange *x);
/* Stores a computed prompt, with --transfer shared. */
void kvb_shared_store(struct kvb_exchange *x);

#endif
