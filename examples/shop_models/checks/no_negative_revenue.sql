SELECT * FROM mart.daily_revenue WHERE revenue < 0
