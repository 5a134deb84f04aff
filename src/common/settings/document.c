/*
 * document.c - builds the tree from libyaml's events.
 *
 * libyaml can build a tree itself, but that does not report mistakes in the order of the text,
 * resolves aliases and accepts everything; building from events takes no more code. A fixed stack
 * holds the open mappings and lists, so nesting is bounded before libyaml reads their contents.
 *
 * After a mistake that leaves the rest readable (an alias, a tag) reading goes on; after a syntax
 * error of YAML the rest has no meaning, and reading ends with that one line.
 *
 * libyaml guesses UTF-16 from the first bytes unless an encoding is set: kvway sets UTF-8, and
 * first removes a byte order mark, so that columns of the first line count visible characters.
 */
#include "settings/document.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define PATH_ROOM 128

/* An open list or mapping. */
struct level {
	struct kvw_node *node;
	struct kvw_node *key; /* in a mapping: the key whose value comes next; else NULL */
};

struct builder {
	struct kvw_document *document;
	struct kvw_report *report;
	size_t most; /* nodes */
	const char *text;
	size_t len;
	size_t depth;
	struct level levels[KVW_DOCUMENT_DEPTH];
	size_t documents;
};

static struct kvw_place place_of(const yaml_mark_t *mark)
{
	return (struct kvw_place){.line = mark->line + 1, .column = mark->column + 1};
}

const char *kvw_node_kind_name(const struct kvw_node *node)
{
	switch (node->kind) {
	case KVW_NODE_LIST:
		return "a list";
	case KVW_NODE_MAP:
		return "a mapping";
	case KVW_NODE_SCALAR:
	case KVW_NODE_BAD:
		break;
	}
	return "text";
}

bool kvw_node_is_null(const struct kvw_node *node)
{
	if (node->kind != KVW_NODE_SCALAR || node->quoted)
		return false;
	return node->len == 0 || strcmp(node->text, "~") == 0 || strcmp(node->text, "null") == 0;
}

static enum kvw_err make_node(struct builder *b, const yaml_event_t *event, enum kvw_node_kind kind,
	const void *text, size_t len, struct kvw_node **out)
{
	struct kvw_node *node;

	if (b->document->node_count >= b->most) {
		kvw_report_mistake(b->report, place_of(&event->start_mark), NULL,
			"found more than %zu keys and values, expected a configuration", b->most);
		return KVW_EINVAL;
	}
	node = malloc(sizeof(*node) + len + 1);
	if (node == NULL)
		return KVW_ENOMEM;
	*node = (struct kvw_node){.kind = kind, .len = len, .place = place_of(&event->start_mark)};
	if (len > 0)
		memcpy(node->text, text, len);
	node->text[len] = '\0';
	node->older = b->document->newest;
	b->document->newest = node;
	b->document->node_count++;
	*out = node;
	return KVW_OK;
}

/* Puts a node into the tree: as its root, or as an entry, key or value. */
static void attach(struct builder *b, struct kvw_node *node)
{
	struct level *level;
	struct kvw_node *parent;

	if (b->depth == 0) {
		b->document->root = node;
		return;
	}
	level = &b->levels[b->depth - 1];
	parent = level->node;
	if (parent->kind == KVW_NODE_MAP && level->key == NULL) {
		level->key = node;
		return;
	}
	node->key = level->key;
	level->key = NULL;
	if (parent->last != NULL)
		parent->last->next = node;
	else
		parent->first = node;
	parent->last = node;
	parent->count++;
}

/* Returns whether the next node is a key. */
static bool at_key(const struct builder *b)
{
	const struct level *level;

	if (b->depth == 0)
		return false;
	level = &b->levels[b->depth - 1];
	return level->node->kind == KVW_NODE_MAP && level->key == NULL;
}

/* Writes the path of the current node, such as "workers[1].url", cut if it does not fit. Returns
 * NULL at the top. */
static const char *path_here(const struct builder *b, char *out, size_t room)
{
	size_t used = 0;

	/* Level i is named by the key or index in level i - 1. The current node has no level
	 * yet. */
	for (size_t i = 1; i <= b->depth && used < room; i++) {
		const struct level *in = &b->levels[i - 1];
		const struct kvw_node *key = i < b->depth ? b->levels[i].node->key : in->key;
		size_t index = in->node->count - (i < b->depth ? 1 : 0);
		int n = 0;

		if (in->node->kind == KVW_NODE_LIST)
			n = snprintf(out + used, room - used, "[%zu]", index);
		else if (key != NULL)
			n = snprintf(
				out + used, room - used, "%s%s", used > 0 ? "." : "", key->text);
		used += n > 0 ? (size_t)n : 0;
	}
	return used > 0 ? out : NULL;
}

static void refuse_decoration(struct builder *b, const yaml_event_t *event,
	const yaml_char_t *anchor, const yaml_char_t *tag)
{
	char quoted[KVW_REPORT_QUOTE], path[PATH_ROOM];

	if (anchor != NULL)
		kvw_report_mistake(b->report, place_of(&event->start_mark),
			path_here(b, path, sizeof(path)),
			"found the anchor %s, expected a plain value: anchors and aliases are not "
			"supported",
			kvw_report_quote(
				quoted, (const char *)anchor, strlen((const char *)anchor)));
	if (tag != NULL)
		kvw_report_mistake(b->report, place_of(&event->start_mark),
			path_here(b, path, sizeof(path)),
			"found the tag %s, expected a plain value: tags are not supported",
			kvw_report_quote(quoted, (const char *)tag, strlen((const char *)tag)));
}

static enum kvw_err on_scalar(struct builder *b, const yaml_event_t *event)
{
	struct kvw_node *node = NULL;
	enum kvw_err err;

	refuse_decoration(b, event, event->data.scalar.anchor, event->data.scalar.tag);
	err = make_node(b, event, KVW_NODE_SCALAR, event->data.scalar.value,
		event->data.scalar.length, &node);
	if (err != KVW_OK)
		return err;
	node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
	attach(b, node);
	return KVW_OK;
}

static enum kvw_err on_alias(struct builder *b, const yaml_event_t *event)
{
	const char *anchor = (const char *)event->data.alias.anchor;
	char quoted[KVW_REPORT_QUOTE], path[PATH_ROOM];
	struct kvw_node *node = NULL;
	enum kvw_err err;

	kvw_report_mistake(b->report, place_of(&event->start_mark),
		path_here(b, path, sizeof(path)),
		"found the alias %s, expected the value written out: anchors and aliases are not "
		"supported",
		kvw_report_quote(quoted, anchor, strlen(anchor)));
	err = make_node(b, event, KVW_NODE_BAD, NULL, 0, &node);
	if (err == KVW_OK)
		attach(b, node);
	return err;
}

static enum kvw_err on_open(struct builder *b, const yaml_event_t *event, enum kvw_node_kind kind)
{
	struct kvw_node *node = NULL;
	char path[PATH_ROOM];
	bool is_key = at_key(b);
	enum kvw_err err;

	if (kind == KVW_NODE_LIST)
		refuse_decoration(b, event, event->data.sequence_start.anchor,
			event->data.sequence_start.tag);
	else
		refuse_decoration(
			b, event, event->data.mapping_start.anchor, event->data.mapping_start.tag);
	if (b->depth == KVW_DOCUMENT_DEPTH) {
		kvw_report_mistake(b->report, place_of(&event->start_mark),
			path_here(b, path, sizeof(path)),
			"found more than %d levels of nesting, expected a configuration",
			KVW_DOCUMENT_DEPTH);
		return KVW_EINVAL;
	}
	err = make_node(b, event, kind, NULL, 0, &node);
	if (err != KVW_OK)
		return err;
	if (is_key)
		kvw_report_mistake(b->report, node->place, path_here(b, path, sizeof(path)),
			"found %s as a key, expected a name", kvw_node_kind_name(node));
	attach(b, node);
	b->levels[b->depth++] = (struct level){.node = node};
	return KVW_OK;
}

static void on_close(struct builder *b)
{
	struct kvw_node *node = b->levels[--b->depth].node;

	/* A mapping or list as a key was refused when it began, so its value has no name. */
	if (b->depth > 0 && b->levels[b->depth - 1].key == node)
		node->kind = KVW_NODE_BAD;
}

static enum kvw_err on_event(struct builder *b, const yaml_event_t *event)
{
	switch (event->type) {
	case YAML_DOCUMENT_START_EVENT:
		if (b->documents++ == 0)
			return KVW_OK;
		kvw_report_mistake(b->report, place_of(&event->start_mark), NULL,
			"found a second document, expected one configuration in a file");
		return KVW_EINVAL;
	case YAML_SCALAR_EVENT:
		return on_scalar(b, event);
	case YAML_ALIAS_EVENT:
		return on_alias(b, event);
	case YAML_SEQUENCE_START_EVENT:
		return on_open(b, event, KVW_NODE_LIST);
	case YAML_MAPPING_START_EVENT:
		return on_open(b, event, KVW_NODE_MAP);
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		on_close(b);
		return KVW_OK;
	default:
		return KVW_OK;
	}
}

/* Returns line and column of a byte; a column is a character, as libyaml counts. */
static struct kvw_place place_of_byte(const char *text, size_t offset)
{
	struct kvw_place place = {.line = 1, .column = 1};

	for (size_t i = 0; i < offset; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c == '\n' || (c == '\r' && (i + 1 == offset || text[i + 1] != '\n'))) {
			place.line++;
			place.column = 1;
		} else if ((c & 0xC0) != 0x80) {
			place.column++;
		}
	}
	return place;
}

/* Reports libyaml's error in kvway's own words. */
static enum kvw_err report_syntax(struct builder *b, const yaml_parser_t *parser)
{
	const char *problem = parser->problem != NULL ? parser->problem : "not valid YAML";
	const char *context = parser->context;
	size_t index = parser->problem_mark.index;

	if (parser->error == YAML_MEMORY_ERROR)
		return KVW_ENOMEM;
	if (parser->error == YAML_READER_ERROR) {
		size_t offset = parser->problem_offset < b->len ? parser->problem_offset : b->len;
		bool control = parser->problem_value >= 0 && parser->problem_value < 0x20 &&
			       strstr(problem, "control") != NULL;

		kvw_report_mistake(b->report, place_of_byte(b->text, offset), NULL,
			"found %s 0x%02X (%s), expected UTF-8 text",
			control ? "a control character" : "the byte",
			/* libyaml's value is 0, or the whole character, unless a single byte is
			 * wrong, so the byte is read from the text */
			offset < b->len ? (unsigned)(unsigned char)b->text[offset] : 0, problem);
		return KVW_EINVAL;
	}
	/* libyaml's index counts characters, so it points at the tab only if the text before is
	 * ASCII; then the message names the tab. */
	if (index < b->len && b->text[index] == '\t' && strstr(problem, "cannot start") != NULL)
		kvw_report_mistake(b->report, place_of(&parser->problem_mark), NULL,
			"found a tab, expected spaces: YAML does not indent with tabs");
	else if (context != NULL)
		kvw_report_mistake(b->report, place_of(&parser->problem_mark), NULL,
			"not valid YAML: %s %s (begun at line %zu)", problem, context,
			parser->context_mark.line + 1);
	else
		kvw_report_mistake(b->report, place_of(&parser->problem_mark), NULL,
			"not valid YAML: %s", problem);
	return KVW_EINVAL;
}

static enum kvw_err read_events(struct builder *b, yaml_parser_t *parser)
{
	yaml_event_t event;
	enum kvw_err err = KVW_OK;
	bool more = true;

	while (err == KVW_OK && more) {
		if (!yaml_parser_parse(parser, &event))
			return report_syntax(b, parser);
		more = event.type != YAML_STREAM_END_EVENT && event.type != YAML_NO_EVENT;
		err = on_event(b, &event);
		yaml_event_delete(&event);
	}
	return err;
}

enum kvw_err kvw_document_parse(
	const char *text, size_t len, struct kvw_report *report, struct kvw_document *out)
{
	return kvw_document_parse_most(text, len, KVW_DOCUMENT_NODES, report, out);
}

enum kvw_err kvw_document_parse_most(const char *text, size_t len, size_t most,
	struct kvw_report *report, struct kvw_document *out)
{
	static const char byte_order_mark[3] = {'\xEF', '\xBB', '\xBF'};
	struct kvw_document document = {0};
	struct builder b = {.document = &document, .report = report, .most = most};
	yaml_parser_t parser;
	enum kvw_err err;

	if (len >= sizeof(byte_order_mark) &&
		memcmp(text, byte_order_mark, sizeof(byte_order_mark)) == 0) {
		text += sizeof(byte_order_mark);
		len -= sizeof(byte_order_mark);
	}
	b.text = text;
	b.len = len;
	if (!yaml_parser_initialize(&parser))
		return KVW_ENOMEM;
	yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
	err = read_events(&b, &parser);
	yaml_parser_delete(&parser);
	if (err == KVW_OK)
		*out = document;
	else
		kvw_document_finish(&document);
	return err;
}

void kvw_document_finish(struct kvw_document *document)
{
	while (document->newest != NULL) {
		struct kvw_node *node = document->newest;

		document->newest = node->older;
		free(node);
	}
	*document = (struct kvw_document){0};
}
