SELECT day, count(*) AS orders, sum(amount) AS revenue
FROM staging.orders
WHERE day = $day AND status <> 'returned'
GROUP BY day
