/* replay_slo.h - defines which answers are good, for every figure of the replay. */
#ifndef KVB_REPLAY_SLO_H
#define KVB_REPLAY_SLO_H

#include <stdint.h>

/* Limits of a good answer: its first token comes within ttft_s + input / tokens_per_s, each
 * further token within tpot_s. */
struct kvb_replay_slo {
	double ttft_s, tokens_per_s, tpot_s;
};
extern const struct kvb_replay_slo kvb_replay_slo;

/* Returns the seconds that the first token of a prompt may take. */
static inline double kvb_slo_first_s(uint32_t input)
{
	return kvb_replay_slo.ttft_s + input / kvb_replay_slo.tokens_per_s;
}

#endif
