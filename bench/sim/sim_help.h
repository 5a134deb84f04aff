/*
 * sim_help.h - the text of `kvsim --help`.
 */
#ifndef KVB_SIM_HELP_H
#define KVB_SIM_HELP_H

extern const char kvb_sim_help[];

#endif
