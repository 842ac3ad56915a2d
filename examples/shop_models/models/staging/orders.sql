-- ---
-- description: Orders. Each run reads the new ones only.
-- key: id
-- write: upsert
-- incremental: raw.orders
-- checks:
--   - accepted_values: {column: status, values: [open, paid, returned]}
--   - relations: {column: customer, to: staging.customers, field: id}
--   - row_count: {min: 1}
-- ---
SELECT id, customer, lower(status) AS status, amount,
       CAST(ordered_at AS DATE) AS day
FROM raw.orders
