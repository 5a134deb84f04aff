/*
 * explain_limits.c - what the request's key, tenant and model have left of their limits.
 *
 * The names are those of the configuration, as proxy/rate.c charges them: a group's own name for a model counts for the
 * model where it has no limits itself. A key is not known here.
 */
#include "admin/explanation.h"
#include "base/clock.h"

static void put_left(struct kvw_page *text, const char *name, const struct kvw_rate_left *left)
{
	if (left->limit == 0)
		return;
	kvw_page_string(text, ",\"");
	kvw_page_string(text, name);
	kvw_page_string(text, "\":{\"limit\":");
	kvw_page_i64(text, left->limit);
	kvw_page_string(text, ",\"remaining\":");
	kvw_page_i64(text, left->remaining);
	if (left->reset_ns > 0) {
		kvw_page_string(text, ",\"reset_ms\":");
		kvw_page_i64(text, (left->reset_ns + 999999) / 1000000);
	}
	kvw_page_string(text, "}");
}

/* served_as: what the workers call the model; len 0: as the party's name says. */
static void put_party(const struct kvw_explanation *e, struct kvw_page *text, const char *of,
	struct kvw_rate_party party, struct kvw_slice served_as, size_t *shown)
{
	struct kvw_rate_time time = {e->now_ns, kvw_clock_wall_ns()};
	struct kvw_rate_state state;

	if (party.name.len == 0 || !kvw_rate_limits_any(&party.limits))
		return;
	kvw_rates_look(e->source->rates, &party, &time, &state);
	kvw_page_string(text, (*shown)++ > 0 ? ",{\"of\":\"" : "{\"of\":\"");
	kvw_page_string(text, of);
	kvw_page_string(text, "\",\"name\":");
	kvw_page_json(text, party.name);
	if (served_as.len > 0 && !kvw_slice_equal(served_as, party.name)) {
		kvw_page_string(text, ",\"served_as\":");
		kvw_page_json(text, served_as);
	}
	put_left(text, "requests_per_minute", &state.requests);
	put_left(text, "tokens_per_minute", &state.tokens);
	put_left(text, "tokens_per_day", &state.day);
	put_left(text, "concurrent", &state.concurrent);
	kvw_page_string(text, "}");
}

static struct kvw_slice model_of(const struct kvw_explanation *e)
{
	const struct kvw_model *meant;

	if (e->route.model.len > 0)
		return kvw_explanation_model(e);
	meant = kvw_fleet_meant_model(e->source->fleet);
	return kvw_slice_of(meant == NULL ? NULL : meant->name);
}

void kvw_explanation_limits(const struct kvw_explanation *e, struct kvw_page *text)
{
	const struct kvw_explain_query *query = e->query;
	const struct kvw_config *config = e->source->config;
	const struct kvw_slice none = {NULL, 0};
	const struct kvw_rate_limit *tenant_rate = kvw_config_tenant_rate(config, query->tenant);
	const struct kvw_rate_limit *model_rate = kvw_config_served_rate(config, model_of(e));
	size_t shown = 0;

	if (e->source->rates == NULL)
		return;
	kvw_page_string(text, ",\"limits\":[");
	put_party(e, text, "key", (struct kvw_rate_party){KVW_RATE_KEY, query->key, query->key_limits}, none, &shown);
	if (tenant_rate != NULL)
		put_party(e, text, "tenant",
			(struct kvw_rate_party){KVW_RATE_TENANT, query->tenant, KVW_RATE_LIMITS_OF(tenant_rate)},
			none, &shown);
	if (model_rate != NULL)
		put_party(e, text, "model",
			(struct kvw_rate_party){KVW_RATE_MODEL, kvw_slice_of(model_rate->model),
				KVW_RATE_LIMITS_OF(model_rate)},
			e->route.model, &shown);
	kvw_page_string(text, "]");
}
