-- ---
-- description: Customers, with one spelling for addresses.
-- key: id
-- checks:
--   - not_null: [name, email]
--   - unique: email
-- ---
SELECT id, trim(name) AS name, lower(trim(email)) AS email
FROM raw.customers
