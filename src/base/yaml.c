/* yaml.c -- see yaml.h.
 *
 * Reading events of libyaml, not documents, keeps the place of every token and bounds what a hostile file can
 * cost: no anchors or aliases, no tags, MAX_DEPTH levels, MAX_BYTES in all.
 */
#include "base/yaml.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/files.h"
#include "base/text.h"

#define MAX_BYTES ((size_t)1 << 20)
#define MAX_DEPTH 4
#define MAX_KEYS 256      /* in one mapping */
#define MAX_PATH 128
#define MAX_PLACE 512

typedef struct {
    orth_ctx *ctx;
    const orth_yaml_schema *schema;
    void *user;                    /* of the schema's functions */
    const char *name;              /* of the file */
    bool fixed_place;              /* `name` is the whole place: a value of the command line */
    bool open;                     /* parser is initialized */
    yaml_parser_t parser;
    yaml_event_t event;            /* the present one */
    orth_arena scratch;            /* keys and texts of this file */
    char place[MAX_PLACE];         /* of the present event */
} reader;

/* A key of the mapping being read. */
typedef struct {
    const char *text;
    int line;
} seen_key;

static void set_place(reader *r, int line, int column)
{
    if (r->fixed_place)
        snprintf(r->place, sizeof r->place, "%s", r->name);
    else
        snprintf(r->place, sizeof r->place, "%s:%d:%d", r->name, line, column);
}

#define REFUSE(r, ...) refuse((r), __FILE__, __LINE__, __VA_ARGS__)

static orth_status __attribute__((format(printf, 4, 5)))
refuse(reader *r, const char *file, int line, const char *fmt, ...)
{
    char text[ORTH_MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return orth_fail(r->ctx, ORTH_ERR_ARG, file, line, "%s: %s", r->place, text);
}

static orth_status fail_syntax(reader *r)
{
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return ORTH_FAIL(r->ctx, ORTH_ERR_NOMEM, "no memory to read %s", r->name);
    set_place(r, (int)p->problem_mark.line + 1, (int)p->problem_mark.column + 1);
    return REFUSE(r, "is not YAML: %s%s%s", p->context ? p->context : "", p->context ? ", " : "", p->problem);
}

static bool is_tagged(const yaml_event_t *e)
{
    return (e->type == YAML_SCALAR_EVENT && e->data.scalar.tag) ||
           (e->type == YAML_SEQUENCE_START_EVENT && e->data.sequence_start.tag) ||
           (e->type == YAML_MAPPING_START_EVENT && e->data.mapping_start.tag);
}

static bool is_anchored(const yaml_event_t *e)
{
    return (e->type == YAML_SCALAR_EVENT && e->data.scalar.anchor) ||
           (e->type == YAML_SEQUENCE_START_EVENT && e->data.sequence_start.anchor) ||
           (e->type == YAML_MAPPING_START_EVENT && e->data.mapping_start.anchor);
}

static orth_status next_event(reader *r)
{
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->parser, &r->event))
        return fail_syntax(r);
    const yaml_mark_t *mark = &r->event.start_mark;
    set_place(r, (int)mark->line + 1, (int)mark->column + 1);
    if (r->event.type == YAML_ALIAS_EVENT || is_anchored(&r->event))
        return REFUSE(r, "anchors and aliases are not accepted");
    if (is_tagged(&r->event))
        return REFUSE(r, "tags are not accepted");
    return ORTH_OK;
}

/* The present scalar, in the scratch arena. */
static orth_status scalar_text(reader *r, const char **out)
{
    const char *text = (const char *)r->event.data.scalar.value;
    if (strlen(text) != r->event.data.scalar.length)
        return REFUSE(r, "a text with a zero byte is not accepted");
    *out = orth_arena_printf(r->ctx, &r->scratch, "%s", text);
    return *out ? ORTH_OK : ORTH_ERR_NOMEM;
}

/* The present scalar as the next item. */
static orth_status add_item(reader *r, orth_written *out)
{
    out->is_quoted[out->num_items] = r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    return scalar_text(r, &out->items[out->num_items++]);
}

/* Nothing at all after the colon, as against "". */
static bool is_empty_scalar(const reader *r)
{
    return r->event.type == YAML_SCALAR_EVENT && r->event.data.scalar.length == 0 &&
           r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

/* The present event starts a list or a mapping; leaves its end as the present event. */
static orth_status skip(reader *r)
{
    for (int depth = 1; depth > 0;) {
        ORTH_TRY(next_event(r));
        const yaml_event_type_t t = r->event.type;
        depth += (t == YAML_SEQUENCE_START_EVENT || t == YAML_MAPPING_START_EVENT) - (t == YAML_SEQUENCE_END_EVENT || t == YAML_MAPPING_END_EVENT);
    }
    return ORTH_OK;
}

/* A list of whatever there is; *taken false: of more than scalars, or too many. */
static orth_status read_any_list(reader *r, orth_written *out, bool *taken)
{
    *out = (orth_written){.is_list = true};
    for (*taken = true;;) {
        ORTH_TRY(next_event(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            return ORTH_OK;
        *taken = *taken && r->event.type == YAML_SCALAR_EVENT && out->num_items < ORTH_LIST_MAX;
        if (r->event.type != YAML_SCALAR_EVENT)
            ORTH_TRY(skip(r));
        else if (*taken)
            ORTH_TRY(add_item(r, out));
    }
}

/* The present event starts a list; leaves its end as the present event. */
static orth_status read_list(reader *r, orth_written *out)
{
    *out = (orth_written){.is_list = true};
    for (;;) {
        ORTH_TRY(next_event(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            return ORTH_OK;
        if (r->event.type != YAML_SCALAR_EVENT)
            return REFUSE(r, "a list holds single values only");
        if (out->num_items == ORTH_LIST_MAX)
            return REFUSE(r, "a list holds at most %d values", ORTH_LIST_MAX);
        ORTH_TRY(add_item(r, out));
    }
}

static orth_status read_value(reader *r, const char *path, orth_yaml_kind kind)
{
    orth_written value = {0};
    char place[MAX_PLACE];
    memcpy(place, r->place, sizeof place); /* a list moves on */
    if (kind == ORTH_YAML_SCALAR && r->event.type != YAML_SCALAR_EVENT)
        return REFUSE(r, "%s takes one value", path);
    if (kind == ORTH_YAML_VALUE && is_empty_scalar(r))
        return REFUSE(r, "%s has no value", path);
    if (r->event.type == YAML_MAPPING_START_EVENT)
        return REFUSE(r, "%s takes a value, not a mapping", path);
    bool taken = true;
    if (r->event.type == YAML_SEQUENCE_START_EVENT)
        ORTH_TRY(kind == ORTH_YAML_ANY ? read_any_list(r, &value, &taken) : read_list(r, &value));
    else
        ORTH_TRY(add_item(r, &value));
    if (!taken)
        value = (orth_written){.items = {"[...]"}, .num_items = 1};
    return r->schema->put(r->ctx, r->user, path, place, &value);
}

static orth_status read_mapping(reader *r, const char *prefix, int depth);

/* The present event is a key; leaves the end of its value as the present event. */
static orth_status read_pair(reader *r, const char *prefix, int depth, seen_key *seen, int num_seen)
{
    if (r->event.type != YAML_SCALAR_EVENT)
        return REFUSE(r, "a key must be a word");
    const char *key = NULL;
    char path[MAX_PATH], key_place[MAX_PLACE];
    ORTH_TRY(scalar_text(r, &key));
    snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", key);
    for (int i = 0; i < num_seen; i++)
        if (strcmp(seen[i].text, key) == 0)
            return REFUSE(r, "duplicate key '%s', first given in line %d", path, seen[i].line);
    seen[num_seen] = (seen_key){key, (int)r->event.start_mark.line + 1};

    memcpy(key_place, r->place, sizeof key_place);
    const orth_yaml_kind kind = r->schema->kind(r->user, path);
    if (kind == ORTH_YAML_UNKNOWN)
        return r->schema->unknown(r->ctx, r->user, key_place, path);
    ORTH_TRY(next_event(r));
    if (kind == ORTH_YAML_ANY && r->event.type == YAML_MAPPING_START_EVENT)
        return read_mapping(r, path, depth + 1);
    if (kind != ORTH_YAML_SECTION)
        return read_value(r, path, kind);
    if (is_empty_scalar(r))
        return ORTH_OK;
    if (r->event.type != YAML_MAPPING_START_EVENT)
        return REFUSE(r, "%s takes keys, as in `%s: {key: value}`", path, key);
    return read_mapping(r, path, depth + 1);
}

/* The present event starts a mapping; leaves its end as the present event. */
static orth_status read_mapping(reader *r, const char *prefix, int depth)
{
    if (depth > MAX_DEPTH)
        return REFUSE(r, "is nested deeper than %d levels", MAX_DEPTH);
    seen_key *seen = ORTH_ARENA_ARRAY(r->ctx, &r->scratch, seen_key, MAX_KEYS);
    if (!seen)
        return ORTH_ERR_NOMEM;
    for (int n = 0;; n++) {
        ORTH_TRY(next_event(r));
        if (r->event.type == YAML_MAPPING_END_EVENT)
            return ORTH_OK;
        if (n == MAX_KEYS)
            return REFUSE(r, "a mapping holds at most %d keys", MAX_KEYS);
        ORTH_TRY(read_pair(r, prefix, depth, seen, n));
    }
}

/* Up to and with the event that starts the root of the only document. */
static orth_status enter_document(reader *r)
{
    set_place(r, 1, 1);
    ORTH_TRY(next_event(r));
    if (r->event.type == YAML_STREAM_START_EVENT)
        ORTH_TRY(next_event(r));
    if (r->event.type != YAML_DOCUMENT_START_EVENT)
        return REFUSE(r, "is empty");
    return next_event(r);
}

static orth_status leave_document(reader *r)
{
    ORTH_TRY(next_event(r));
    if (r->event.type == YAML_DOCUMENT_END_EVENT)
        ORTH_TRY(next_event(r));
    if (r->event.type != YAML_STREAM_END_EVENT)
        return REFUSE(r, "holds more than one document");
    return ORTH_OK;
}

static orth_status reader_open(reader *r, const char *text, size_t num_bytes)
{
    r->open = yaml_parser_initialize(&r->parser);
    if (!r->open)
        return ORTH_FAIL(r->ctx, ORTH_ERR_NOMEM, "no memory to read %s", r->name);
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)text, num_bytes);
    return ORTH_OK;
}

static void reader_close(reader *r)
{
    yaml_event_delete(&r->event);
    if (r->open)
        yaml_parser_delete(&r->parser);
    orth_arena_release(r->ctx, &r->scratch);
}

/* libyaml has no place for bytes that it refuses, and takes UTF-16 as well. */
static orth_status check_bytes(reader *r, const char *text, size_t num_bytes)
{
    int line = 1, column = 1;
    for (size_t i = 0; i < num_bytes; i++, column++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f) {
            set_place(r, line, column);
            return REFUSE(r, "byte 0x%02x is not accepted", c);
        }
        if (c == '\n' || c == '\r') {
            line += c == '\n';
            column = 0;
        }
    }
    set_place(r, 1, 1);
    char *copy = orth_arena_printf(r->ctx, &r->scratch, "%.*s", (int)num_bytes, text);
    if (!copy)
        return ORTH_ERR_NOMEM;
    return orth_utf8_valid(copy) ? ORTH_OK : REFUSE(r, "is not UTF-8");
}

static orth_status read_file(reader *r, const char *text, size_t num_bytes)
{
    ORTH_TRY(check_bytes(r, text, num_bytes));
    ORTH_TRY(reader_open(r, text, num_bytes));
    ORTH_TRY(enter_document(r));
    if (is_empty_scalar(r))
        return REFUSE(r, "is empty");
    if (r->event.type != YAML_MAPPING_START_EVENT)
        return REFUSE(r, "%s is a mapping, as in `%s`", r->schema->what, r->schema->example);
    ORTH_TRY(read_mapping(r, "", 1));
    return leave_document(r);
}

orth_status orth_yaml_parse(orth_ctx *ctx, const orth_yaml_schema *schema, void *user, const char *name, const char *text,
                            size_t num_bytes)
{
    reader r = {.ctx = ctx, .schema = schema, .user = user, .name = name};
    set_place(&r, 1, 1);
    if (num_bytes > MAX_BYTES)
        return REFUSE(&r, "is %zu bytes long; %s has at most %zu", num_bytes, schema->what, MAX_BYTES);
    if (num_bytes == 0)
        return REFUSE(&r, "is empty");
    orth_status s = read_file(&r, text, num_bytes);
    reader_close(&r);
    return s;
}

orth_status orth_yaml_load(orth_ctx *ctx, const orth_yaml_schema *schema, void *user, const char *path)
{
    orth_file_map map;
    ORTH_TRY(orth_file_map_open(ctx, &map, path));
    orth_status s = orth_yaml_parse(ctx, schema, user, path, (const char *)map.data, map.size);
    orth_file_map_close(&map);
    return s;
}

static orth_status read_whole_list(reader *r, const char *text, orth_written *out)
{
    ORTH_TRY(reader_open(r, text, strlen(text)));
    ORTH_TRY(enter_document(r));
    if (r->event.type != YAML_SEQUENCE_START_EVENT)
        return REFUSE(r, "is not a list");
    ORTH_TRY(read_list(r, out));
    return leave_document(r);
}

orth_status orth_yaml_list(orth_ctx *ctx, orth_arena *arena, const char *place, const char *text, orth_written *out)
{
    reader r = {.ctx = ctx, .name = place, .fixed_place = true};
    orth_status s = read_whole_list(&r, text, out);
    for (int i = 0; s == ORTH_OK && i < out->num_items; i++) {
        out->items[i] = orth_arena_printf(ctx, arena, "%s", out->items[i]);
        s = out->items[i] ? ORTH_OK : ORTH_ERR_NOMEM;
    }
    reader_close(&r);
    return s;
}
