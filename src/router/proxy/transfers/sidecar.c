/*
 * sidecar.c - llm-d's routing sidecar, which stands before each decoder: it asks the prefiller that
 * a field of the request names, and hands the parameters to its own engine.
 *
 * kvway sees one answer. The prefiller's load and cache are booked with the choice; when and how
 * fast it prefilled is not known.
 */
#include "proxy/transfer.h"

#include "fleet/worker.h"
#include "http/head.h"

static void sidecar_fields(const struct kvw_exchange *x, bool prefills, struct kvw_writer *w)
{
	(void)prefills;
	kvw_write_field(w, KVW_SLICE(KVW_PREFILLER_FIELD),
		kvw_slice_of(x->pd->prefiller->authority));
}

const struct kvw_transfer_kind kvw_transfer_sidecar = {
	.leg = KVW_LEG_NEVER,
	.fields = sidecar_fields,
};
